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

// reservation is how long a host object that was made ahead of its virtual
// object, to reserve what the host allocates to it, may wait for it.
const reservation = time.Minute

// Resource declares what is special about one resource that is synced to the
// host. T is a pointer to its Go type, the same on both sides. A nil hook does nothing.
type Resource[T client.Object] struct {
	*Engine
	Name            string                    // the resource's, plural, as in URLs
	NameLimit       int                       // of names on the host, in bytes
	DeleteForbidden bool                      // the host object of what the space's rules forbid (by now) is deleted
	Virtual         cache.SharedIndexInformer // nil: read from the API
	Bound           Bound                     // of host objects; the zero value is none

	// IsUsed reports whether what key names should be on the host, before it is read.
	IsUsed func(key types.NamespacedName) (bool, error)
	// ConcernsNoOthers reports that a change of a virtual object concerns no other objects.
	ConcernsNoOthers func(was, is T) bool

	// ToHost returns v's wanted host object, or false if it should have none.
	ToHost func(ctx context.Context, v T) (T, bool, error)
	// MakesRequests says that ToHost makes requests.
	MakesRequests bool

	// HandleMissing is called before a missing host object is created, and reports
	// whether it dealt with v: then none is created.
	HandleMissing func(ctx context.Context, v T) (bool, error)
	// BeforeCreate completes a wanted host object that is about to be created by what
	// it needs there, or returns why it can't have it.
	BeforeCreate func(ctx context.Context, v, want T) error
	// ForCreate returns the part of a wanted host object that a host takes in a create.
	ForCreate func(want T) T
	// AfterCreate gets what was sent to the host, and what the host made of it.
	AfterCreate func(v, sent, host T)

	// UpdateHost copies onto have what the tenant owns, and reports a difference.
	UpdateHost func(want, have T) bool
	// NeedsRecreate reports a difference that only another host object can have.
	NeedsRecreate func(want, have T) bool
	// MayUpdate is asked before a host object is updated. If it must not be updated
	// yet, an event of what prevents it brings its key back.
	MayUpdate func(ctx context.Context, want T) (bool, error)
	// UpdateSubresources changes on an existing host object what takes requests of its
	// own. It returns the result, with an error, too.
	UpdateSubresources func(ctx context.Context, v, want, host T) (T, error)
	// Relabel keeps the labels or the selector of a host object up to date of which the
	// space's rules forbid another one: by them objects find each other.
	Relabel func(ctx context.Context, v, host T) error
	// HandleDeletion takes over while v is being deleted; exists tells whether host is there.
	HandleDeletion func(ctx context.Context, v, host T, exists bool) error

	// SyncStatus writes back to the space what the host owns, and returns when it must
	// be called again at the latest (0: on the next change).
	SyncStatus func(ctx context.Context, v, host T) (time.Duration, error)
	// ReportRefusal writes to v itself why the host does not take it.
	ReportRefusal func(ctx context.Context, v T, r Refusal) error

	// OwnerOf returns the key that a host object without an identity leads to.
	OwnerOf func(host T) (Key, bool)
	// OnHostEvent gets each host object that was added, changed or deleted.
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
		var again time.Duration
		if hosted && k.Relabel != nil && errors.As(err, &Forbidden{}) && !k.held(v, host) {
			err = errors.Join(err, k.Relabel(ctx, v, host))
		}
		if hosted && k.SyncStatus != nil { // what runs already is reported all the same, and its tokens are refreshed
			var statusErr error
			again, statusErr = k.SyncStatus(ctx, v, host)
			err = errors.Join(err, statusErr)
		}
		if hosted && k.DeleteForbidden && errors.As(err, &Forbidden{}) {
			if err := k.deleteHost(ctx, host); err != nil {
				return 0, err
			}
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
		return 0, k.deleteHost(ctx, host) // its event brings us back
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
		if paced := (*pacedError)(nil); hosted && k.SyncStatus != nil && errors.As(err, &paced) { // its write waits, what the host tells does not
			_, statusErr := k.SyncStatus(ctx, v, host)
			err = errors.Join(err, statusErr)
		}
		return k.settle(ctx, key, v, hosted, err)
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

// wanted is ToHost, as fast as the syncer may compute.
func (k *Resource[T]) wanted(ctx context.Context, v T) (want T, wanted bool, err error) {
	if k.MakesRequests {
		return k.ToHost(ctx, v)
	}
	k.Compute(ctx, func() { want, wanted, err = k.ToHost(ctx, v) })
	return want, wanted, err
}

// held reports whether v is not yet, or not again, what the host object is of.
func (k *Resource[T]) held(v, host T) bool {
	return k.Writer.held(hostcache.Object{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(host)}, hostcache.Version(v.GetResourceVersion()))
}

// create makes v's host object, unless it turns out that it is there already
// (the watch may lag) or that v must not have one any more: then host is nil.
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
		return host, k.There(ctx, v, want) // the watch brings it
	case apierrors.IsInvalid(err): // a service's address is looked at before its name
		if there := k.There(ctx, v, want); !apierrors.IsNotFound(there) {
			return host, there
		}
	}
	return created, err
}

// There looks at what keeps a wanted host object from being made, past the watch:
// it must be the space's.
func (k *Resource[T]) There(ctx context.Context, v, want T) error {
	host, err := k.Live(ctx, want)
	if err != nil {
		return err
	}
	return k.Ours(v, host)
}

// Ours says that a host object under v's name is another's, if it is.
func (k *Resource[T]) Ours(v, host T) error {
	if id, ours := translate.IdentityOf(host); !ours || id.Space != k.Space.Name {
		return fmt.Errorf("%w: the host already has another object with the host name of %s; ask the admin of the platform to delete it", ErrForeign, v.GetName())
	}
	return nil
}

// update makes v's host object as wanted, if it is not. A reserved one becomes
// v's: only while v is there, as the name may be in other hands by now. Who
// reserves it again changes it, so that this comes late and fails.
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

// settle ends a reconcile that the host, or a rule of the space, did not let
// pass: refusals are told to the tenant and tried again ever more rarely, until
// a change of v; other errors are retried as they come.
func (k *Resource[T]) settle(ctx context.Context, key types.NamespacedName, v T, hosted bool, err error) (time.Duration, error) {
	r, told := k.Explain(v, err)
	if !told {
		return 0, fmt.Errorf("sync %s %s: %w", k.Name, key, err)
	}
	r.Message = brief(r.Message)
	k.Recorder.Record(v, corev1.EventTypeWarning, r.Reason, r.Message)
	if k.ReportRefusal != nil && !hosted { // SyncStatus would write otherwise
		if err := k.ReportRefusal(ctx, v, r); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, bounds.ErrExceeded) {
		k.bytes.Keep(Key{Resource: k.Name, NamespacedName: key})
	}
	if QuotaExceeded(err) && k.shortages.waits(Key{Resource: k.Name, NamespacedName: key}) {
		return 0, errWaits
	}
	return 0, errRefused
}

// collect deletes a host object whose virtual object is gone or is another one.
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
		return time.Second, nil // the space's watch lags
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("look for %s %s in the space: %w", k.Name, key, err)
	}
	return 0, k.deleteHost(ctx, host)
}

// deleteHost deletes precisely the object that was looked at.
func (k *Resource[T]) deleteHost(ctx context.Context, host T) error {
	if host.GetDeletionTimestamp() != nil {
		return nil
	}
	err := k.HostAPI.Delete(ctx, host, client.Preconditions{UID: ptr.To(host.GetUID()), ResourceVersion: ptr.To(host.GetResourceVersion())})
	return err
}

// Live reads a host object past the watch.
func (k *Resource[T]) Live(ctx context.Context, like T) (T, error) {
	host := k.newObject()
	err := k.HostAPI.Get(ctx, client.ObjectKeyFromObject(like), host)
	return host, err
}

// newObject is an empty object of the resource.
func (k *Resource[T]) newObject() T { return resources.Of(k.Name).New().(T) }

func (k *Resource[T]) virtualObject(ctx context.Context, key types.NamespacedName) (v T, exists bool, err error) {
	if k.Virtual == nil {
		v = k.newObject()
		err = k.VirtualAPI.Get(ctx, key, v)
		return v, err == nil, client.IgnoreNotFound(err)
	}
	v, exists = Stored[T](k.Virtual, key)
	return v, exists, nil
}

// Stored reads an object of the space from an informer.
func Stored[T client.Object](informer cache.SharedIndexInformer, key types.NamespacedName) (v T, exists bool) {
	item, exists, err := informer.GetIndexer().GetByKey(cache.ObjectName(key).String())
	if err != nil || !exists {
		return v, false
	}
	v, exists = item.(T)
	return v, exists
}

// KeyOf is the key that a host object's events lead to; ok is false for one
// that is not synced.
func KeyOf(name string, host client.Object) (key Key, ok bool) {
	id, ok := translate.IdentityOf(host)
	return Key{Resource: name, NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}}, ok
}
