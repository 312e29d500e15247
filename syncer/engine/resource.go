// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// reservation is how long a host object may exist without a virtual object, if it was created to reserve what the host
// allocates.
const reservation = time.Minute

// Resource declares how one resource is synced to the host. T is a pointer to its Go type, which is the same on both
// sides. Hooks may be nil.
type Resource[T client.Object] struct {
	*Engine
	Name            string                    // the plural name of the resource, as in URLs
	NameLimit       int                       // of names on the host, in bytes
	DeleteForbidden bool                      // the host object is deleted if the space's rules forbid it, also if they do so only now
	Virtual         cache.SharedIndexInformer // nil: read from the API
	Bound           Bound                     // limit of host objects; the zero value means none
	// New returns an empty object. Nil means an object of the type of [resources.Of].
	New func() T

	// IsUsed reports whether the object of key should be on the host. It is called before the object is read.
	IsUsed func(key types.NamespacedName) (bool, error)
	// ConcernsNoOthers reports that a change of a virtual object does not affect other objects.
	ConcernsNoOthers func(was, is T) bool

	// ToHost returns v's wanted host object, or false if it should have none.
	ToHost func(ctx context.Context, v T) (T, bool, error)
	// MakesRequests means that ToHost sends requests.
	MakesRequests bool

	// HandleMissing is called before a missing host object is created. If it returns true, none is created.
	HandleMissing func(ctx context.Context, v T) (bool, error)
	// BeforeCreate completes a wanted host object before it is created, or returns why it can't be.
	BeforeCreate func(ctx context.Context, v, want T) error
	// ForCreate returns the part of a wanted host object that the host accepts when it is created.
	ForCreate func(want T) T
	// AfterCreate is called with what was sent to the host, and what the host returned.
	AfterCreate func(v, sent, host T)

	// UpdateHost copies the tenant's fields to have, and reports whether anything differed.
	UpdateHost func(want, have T) bool
	// NeedsRecreate reports whether immutable fields differ.
	NeedsRecreate func(want, have T) bool
	// MayUpdate is called before a host object is updated. If it returns false, an event of the cause must enqueue the
	// key again.
	MayUpdate func(ctx context.Context, want T) (bool, error)
	// UpdateSubresources updates what an existing host object accepts only in requests of their own. It returns the
	// resulting object, even with an error.
	UpdateSubresources func(ctx context.Context, v, want, host T) (T, error)
	// Relabel updates the labels or the selector of a host object whose other changes the space's rules forbid. Other
	// objects select by them.
	Relabel func(ctx context.Context, v, host T) error
	// AfterDelete is called after a host object was deleted on behalf of the space.
	AfterDelete func(ctx context.Context, host T) error
	// HandleDeletion replaces the default while v is being deleted. exists says whether host exists.
	HandleDeletion func(ctx context.Context, v, host T, exists bool) error

	// SyncStatus writes to the space what the host owns. It returns when it must be called again at the latest; 0 means
	// on the next change.
	SyncStatus func(ctx context.Context, v, host T) (time.Duration, error)
	// ReportRefusal writes to v why the host rejects it.
	ReportRefusal func(ctx context.Context, v T, r Refusal) error

	// OwnerOf returns the key for a host object without an identity.
	OwnerOf func(host T) (Key, bool)
	// OnHostEvent is called for each host object that was added, changed, or deleted.
	OnHostEvent func(host T, enqueue func(Key))
}

func (k *Resource[T]) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	at := k.Space.HostNamespace()
	if resources.Of(k.Name).InCluster {
		at = ""
	}
	host, hosted := hostcache.Get[T](k.Host, k.Name, at, k.Space.HostName(key.Namespace, key.Name, k.NameLimit))
	id := translate.Identity{}
	if hosted {
		id, hosted = translate.IdentityOf(host)
		hosted = hosted && id.Space == k.Space.Name
	}
	if k.IsUsed != nil {
		used, err := k.IsUsed(key)
		if err == nil && !used && hosted {
			err = k.deleteHost(ctx, host)
		}
		if err != nil || !used {
			return 0, err
		}
	}
	v, exists, err := k.virtualObject(ctx, key)
	if err != nil {
		return 0, err
	}
	if hosted && (!exists || id.UID != "" && id.UID != v.GetUID()) {
		return k.collect(ctx, key, host)
	}
	if !exists {
		return 0, nil
	}
	if k.HandleDeletion != nil && v.GetDeletionTimestamp() != nil {
		return 0, k.HandleDeletion(ctx, v, host, hosted)
	}
	want, wanted, err := k.wanted(ctx, v)
	if err != nil {
		if hosted && k.DeleteForbidden && errors.As(err, &Forbidden{}) {
			if err := client.IgnoreNotFound(k.deleteHost(ctx, host)); err != nil {
				return 0, err
			}
			_, err = k.settle(ctx, key, v, hosted, err)
			return 0, err
		}
		var again time.Duration
		if hosted && k.Relabel != nil && errors.As(err, &Forbidden{}) && !k.held(v, host) {
			err = errors.Join(err, k.Relabel(ctx, v, host))
		}
		if hosted && k.SyncStatus != nil { // the status of an existing object is reported nevertheless, and its tokens are renewed
			var statusErr error
			again, statusErr = k.SyncStatus(ctx, v, Behind(host))
			err = errors.Join(err, statusErr)
		}
		_, err = k.settle(ctx, key, v, hosted, err)
		return again, err
	}
	if !wanted {
		if hosted {
			return 0, k.deleteHost(ctx, host)
		}
		return 0, nil
	}
	if hosted && k.held(v, host) {
		return holdLag, nil
	}
	if hosted && k.NeedsRecreate != nil && k.NeedsRecreate(want, host) {
		return 0, k.deleteHost(ctx, host) // the deletion triggers another sync
	}
	if !hosted {
		host, err = k.create(ctx, v, want)
	} else {
		var updated T
		if updated, err = k.update(ctx, v, want, host); err == nil {
			host = updated
		}
	}
	if err != nil {
		var again time.Duration
		if _, refused := k.Explain(v, err); hosted && k.Relabel != nil && refused { // policies select it by its labels, whatever else is refused
			err = errors.Join(err, k.Relabel(ctx, v, host))
		}
		if hosted && k.SyncStatus != nil && k.concernsWrite(v, err) {
			var statusErr error
			again, statusErr = k.SyncStatus(ctx, v, Behind(host))
			err = errors.Join(err, statusErr)
		}
		_, err = k.settle(ctx, key, v, hosted, err)
		return again, err
	}
	if any(host) == any(*new(T)) {
		return 0, nil
	}
	if k.UpdateSubresources != nil {
		host, err = k.UpdateSubresources(ctx, v, want, host)
	}
	var again time.Duration
	if k.SyncStatus != nil {
		var statusErr error
		again, statusErr = k.SyncStatus(ctx, v, host)
		if err == nil && !QuotaExceeded(statusErr) && !errors.Is(statusErr, bounds.ErrExceeded) {
			return again, statusErr
		}
		err = errors.Join(err, statusErr)
	}
	if err != nil {
		_, err = k.settle(ctx, key, v, true, err)
	}
	return again, err
}

// Behind returns a copy of a host object whose status is for another spec than that of the object in the space, and must not be reported
// as if it had observed that one.
func Behind[T client.Object](host T) T {
	behind := host.DeepCopyObject().(T)
	behind.SetGeneration(host.GetGeneration() + 1)
	return behind
}

// wanted calls ToHost, within the syncer's share of computing time.
func (k *Resource[T]) wanted(ctx context.Context, v T) (want T, wanted bool, err error) {
	if k.MakesRequests {
		return k.ToHost(ctx, v)
	}
	k.Compute(ctx, func() { want, wanted, err = k.ToHost(ctx, v) })
	return want, wanted, err
}

// concernsWrite reports whether an error is only about a write of v's host object, which waits or is refused. Then the status of what the
// host has goes on.
func (k *Resource[T]) concernsWrite(v T, err error) bool {
	if _, paced := errors.AsType[*pacedError](err); paced {
		return true
	}
	_, told := k.Explain(v, err)
	return told
}

// held reports whether the host object is not, or no longer, for this version of v.
func (k *Resource[T]) held(v, host T) bool {
	return k.Writer.held(hostcache.Object{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(host)}, hostcache.Version(v.GetResourceVersion()))
}

// create creates v's host object. host is nil if it already exists (the watch may be behind), or if v must no longer
// have one.
func (k *Resource[T]) create(ctx context.Context, v, want T) (host T, err error) {
	if k.HandleMissing != nil {
		if done, err := k.HandleMissing(ctx, v); err != nil || done {
			return host, err
		}
	}
	if k.BeforeCreate != nil {
		if err := k.BeforeCreate(ctx, v, want); err != nil {
			return host, err
		}
	}
	created := want
	if k.ForCreate != nil {
		created = k.ForCreate(want)
	}
	sent := created
	if k.AfterCreate != nil {
		sent = created.DeepCopyObject().(T)
	}
	err = k.createHost(ctx, v, created)
	if err == nil && k.AfterCreate != nil {
		k.AfterCreate(v, sent, created)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return host, k.There(ctx, v, want) // the watch will deliver it
	case apierrors.IsInvalid(err): // the host checks the address of a service before its name
		if there := k.There(ctx, v, want); !apierrors.IsNotFound(there) {
			return host, there
		}
	}
	return created, err
}

// There checks, with the API, the object that prevents a wanted host object from being created: it must belong to the
// space.
func (k *Resource[T]) There(ctx context.Context, v, want T) error {
	host, err := k.Live(ctx, want)
	if err != nil {
		return err
	}
	return k.Ours(v, host)
}

// Ours returns an error if the host object with v's name belongs to another object.
func (k *Resource[T]) Ours(v, host T) error {
	if id, ours := translate.IdentityOf(host); !ours || id.Space != k.Space.Name {
		return fmt.Errorf("%w: the host already has another object with the host name of %s; ask the admin of the platform to delete it", ErrForeign, v.GetName())
	}
	return nil
}

// update makes v's host object equal to want. A reserved object becomes v's only while v exists, because the name may
// have been reused. A new reservation changes the object, so that a late update fails.
func (k *Resource[T]) update(ctx context.Context, v, want, host T) (T, error) {
	var have T
	changed := false
	k.Compute(ctx, func() {
		have = host.DeepCopyObject().(T)
		changed = k.UpdateHost(want, have)
	})
	if !changed {
		return host, nil
	}
	if id, _ := translate.IdentityOf(host); id.UID == "" {
		current := k.newObject()
		if err := k.VirtualAPI.Get(ctx, client.ObjectKeyFromObject(v), current); err != nil {
			return host, err
		}
		if current.GetUID() != v.GetUID() {
			return host, apierrors.NewConflict(schema.GroupResource{Resource: k.Name}, v.GetName(), errors.New("the object was replaced in the meantime"))
		}
	}
	if k.MayUpdate != nil {
		if may, err := k.MayUpdate(ctx, have); err != nil || !may {
			return host, err
		}
	}
	return have, k.HostAPI.Update(ctx, have)
}

// settle ends a reconcile that the host, or a rule of the space, did not accept. Rejections are reported to the tenant,
// and retried less and less often until v changes. Other errors are returned.
func (k *Resource[T]) settle(ctx context.Context, key types.NamespacedName, v T, hosted bool, err error) (time.Duration, error) {
	r, told := k.Explain(v, err)
	if !told {
		return 0, fmt.Errorf("sync %s %s: %w", k.Name, key, err)
	}
	r.Message = brief(r.Message)
	k.Recorder.Record(v, corev1.EventTypeWarning, r.Reason, r.Message)
	if k.ReportRefusal != nil && !hosted { // otherwise, SyncStatus and this would overwrite each other
		if err := k.ReportRefusal(ctx, v, r); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, bounds.ErrExceeded) {
		k.bytes.Keep(Key{Resource: k.Name, NamespacedName: key})
	}
	k.tellShort(err)
	if QuotaExceeded(err) && k.shortages.waits(Key{Resource: k.Name, NamespacedName: key}) {
		return 0, errWaits
	}
	return 0, errRefused
}

// collect deletes a host object whose virtual object is gone or has another UID.
func (k *Resource[T]) collect(ctx context.Context, key types.NamespacedName, host T) (time.Duration, error) {
	id, _ := translate.IdentityOf(host)
	if id.UID == "" {
		if wait := reservation - k.Clock.Since(host.GetCreationTimestamp().Time); wait > 0 {
			return wait, nil
		}
		if k.Writer.reserving(hostcache.Object{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(host)}) {
			return holdLag, nil // its request takes long
		}
	}
	current := k.newObject()
	err := k.VirtualAPI.Get(ctx, key, current)
	if err == nil && (id.UID == "" || current.GetUID() == id.UID) {
		return time.Second, nil // the space's watch is behind
	}
	// While the definition of an extension isn't served, objects may be stored.
	if client.IgnoreNotFound(err) != nil || k.added[k.Name] != nil && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return 0, fmt.Errorf("look for %s %s in the space: %w", k.Name, key, err)
	}
	if err := k.notHidden(ctx, Key{k.Name, key}, current, id.UID); err != nil {
		return 0, err
	}
	return 0, k.deleteHost(ctx, host)
}

// deleteHost deletes exactly this version of an object.
func (k *Resource[T]) deleteHost(ctx context.Context, host T) error {
	if host.GetDeletionTimestamp() != nil {
		return nil
	}
	err := k.HostAPI.Delete(ctx, host, client.Preconditions{UID: ptr.To(host.GetUID()), ResourceVersion: ptr.To(host.GetResourceVersion())})
	if err == nil && k.AfterDelete != nil {
		err = k.AfterDelete(ctx, host)
	}
	return err
}

// Live reads a host object from the API, not from the watch.
func (k *Resource[T]) Live(ctx context.Context, like T) (T, error) {
	host := k.newObject()
	err := k.HostAPI.Get(ctx, client.ObjectKeyFromObject(like), host)
	return host, err
}

// newObject returns an empty object of the resource.
func (k *Resource[T]) newObject() T {
	if k.New != nil {
		return k.New()
	}
	return resources.Of(k.Name).New().(T)
}

func (k *Resource[T]) virtualObject(ctx context.Context, key types.NamespacedName) (v T, exists bool, err error) {
	if k.Virtual == nil {
		v = k.newObject()
		err = k.VirtualAPI.Get(ctx, key, v)
		return v, err == nil, client.IgnoreNotFound(err)
	}
	v, exists = Stored[T](k.Virtual, key)
	return v, exists, nil
}
