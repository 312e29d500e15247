// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

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
	"github.com/berth-dev/berth/translate"
)

// reservation is how long a host object that was made ahead of its virtual
// object (see [Host.ReserveService]) may wait for it.
const reservation = time.Minute

// syncedResource declares what is special about one resource that is synced to the
// host. T is a pointer to its Go type, the same on both sides. A nil hook does nothing.
type syncedResource[T client.Object] struct {
	*Engine
	name            string // the resource's, plural, as in URLs
	nameLimit       int    // of names on the host, in bytes
	clusterScoped   bool   // it is in no namespace, on either side
	deleteForbidden bool   // the host object of what the space's rules forbid (by now) is deleted
	newObject       func() T
	virtual         cache.SharedIndexInformer // nil: read from the API
	bound           bound                     // of host objects; the zero value is none

	// isUsed reports whether what key names should be on the host, before it is read.
	isUsed func(key types.NamespacedName) (bool, error)
	// concernsNoOthers reports that a change of a virtual object concerns no other objects.
	concernsNoOthers func(was, is T) bool

	// toHost returns v's wanted host object, or false if it should have none.
	toHost func(ctx context.Context, v T) (T, bool, error)
	// makesRequests says that toHost makes requests.
	makesRequests bool

	// handleMissing is called before a missing host object is created, and reports
	// whether it dealt with v: then none is created.
	handleMissing func(ctx context.Context, v T) (bool, error)
	// beforeCreate completes a wanted host object that is about to be created by what
	// it needs there, or returns why it can't have it.
	beforeCreate func(ctx context.Context, v, want T) error
	// forCreate returns the part of a wanted host object that a host takes in a create.
	forCreate func(want T) T
	// afterCreate gets what was sent to the host, and what the host made of it.
	afterCreate func(v, sent, host T)

	// updateHost copies onto have what the tenant owns, and reports a difference.
	updateHost func(want, have T) bool
	// needsRecreate reports a difference that only another host object can have.
	needsRecreate func(want, have T) bool
	// mayUpdate is asked before a host object is updated. If it must not be updated
	// yet, an event of what prevents it brings its key back.
	mayUpdate func(ctx context.Context, want T) (bool, error)
	// updateSubresources changes on an existing host object what takes requests of its
	// own. It returns the result, with an error, too.
	updateSubresources func(ctx context.Context, v, want, host T) (T, error)
	// relabel keeps the labels or the selector of a host object up to date of which the
	// space's rules forbid another one: by them objects find each other.
	relabel func(ctx context.Context, v, host T) error
	// handleDeletion takes over while v is being deleted; exists tells whether host is there.
	handleDeletion func(ctx context.Context, v, host T, exists bool) error

	// syncStatus writes back to the space what the host owns, and returns when it must
	// be called again at the latest (0: on the next change).
	syncStatus func(ctx context.Context, v, host T) (time.Duration, error)
	// reportRefusal writes to v itself why the host does not take it.
	reportRefusal func(ctx context.Context, v T, r refusal) error

	// ownerOf returns the key that a host object without an identity leads to.
	ownerOf func(host T) (Key, bool)
	// onHostEvent gets each host object that was added, changed or deleted.
	onHostEvent func(host T, enqueue func(Key))
}

func (k *syncedResource[T]) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	at := k.space.HostNamespace()
	if k.clusterScoped {
		at = ""
	}
	host, hosted := cached[T](k.host, k.name, at, k.space.HostName(key.Namespace, key.Name, k.nameLimit))
	id := translate.Identity{}
	if hosted {
		id, hosted = translate.IdentityOf(host)
		hosted = hosted && id.Space == k.space.Name
	}
	if k.isUsed != nil {
		used, err := k.isUsed(key)
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
	if k.handleDeletion != nil && v.GetDeletionTimestamp() != nil {
		return 0, k.handleDeletion(ctx, v, host, hosted)
	}
	want, wanted, err := k.wanted(ctx, v)
	if err != nil {
		var again time.Duration
		if hosted && k.relabel != nil && errors.As(err, &forbidden{}) && !k.held(v, host) {
			err = errors.Join(err, k.relabel(ctx, v, host))
		}
		if hosted && k.syncStatus != nil { // what runs already is reported all the same, and its tokens are refreshed
			var statusErr error
			again, statusErr = k.syncStatus(ctx, v, host)
			err = errors.Join(err, statusErr)
		}
		if hosted && k.deleteForbidden && errors.As(err, &forbidden{}) {
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
	if hosted && k.needsRecreate != nil && k.needsRecreate(want, host) {
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
		if paced := (*pacedError)(nil); hosted && k.syncStatus != nil && errors.As(err, &paced) { // its write waits, what the host tells does not
			_, statusErr := k.syncStatus(ctx, v, host)
			err = errors.Join(err, statusErr)
		}
		return k.settle(ctx, key, v, hosted, err)
	}
	if any(host) == any(*new(T)) {
		return 0, nil
	}
	if k.updateSubresources != nil {
		host, err = k.updateSubresources(ctx, v, want, host)
	}
	var again time.Duration
	if k.syncStatus != nil {
		var statusErr error
		again, statusErr = k.syncStatus(ctx, v, host)
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

// wanted is toHost, as fast as the syncer may compute.
func (k *syncedResource[T]) wanted(ctx context.Context, v T) (want T, wanted bool, err error) {
	if k.makesRequests {
		return k.toHost(ctx, v)
	}
	k.compute(ctx, func() { want, wanted, err = k.toHost(ctx, v) })
	return want, wanted, err
}

// held reports whether v is not yet, or not again, what the host object is of.
func (k *syncedResource[T]) held(v, host T) bool {
	return k.writer.held(object{k.name, client.ObjectKeyFromObject(host)}, hostcache.Version(v.GetResourceVersion()))
}

// create makes v's host object, unless it turns out that it is there already
// (the watch may lag) or that v must not have one any more: then host is nil.
func (k *syncedResource[T]) create(ctx context.Context, v, want T) (host T, err error) {
	if k.handleMissing != nil {
		if done, err := k.handleMissing(ctx, v); err != nil || done {
			return host, err
		}
	}
	if k.beforeCreate != nil {
		if err := k.beforeCreate(ctx, v, want); err != nil {
			return host, err
		}
	}
	created := want
	if k.forCreate != nil {
		created = k.forCreate(want)
	}
	sent := created
	if k.afterCreate != nil {
		sent = created.DeepCopyObject().(T)
	}
	err = k.createHost(ctx, v, created)
	if err == nil && k.afterCreate != nil {
		k.afterCreate(v, sent, created)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return host, k.there(ctx, v, want) // the watch brings it
	case apierrors.IsInvalid(err): // a service's address is looked at before its name
		if there := k.there(ctx, v, want); !apierrors.IsNotFound(there) {
			return host, there
		}
	}
	return created, err
}

// there looks at what keeps a wanted host object from being made, past the watch:
// it must be the space's.
func (k *syncedResource[T]) there(ctx context.Context, v, want T) error {
	host, err := k.live(ctx, want)
	if err != nil {
		return err
	}
	return k.ours(v, host)
}

// ours says that a host object under v's name is another's, if it is.
func (k *syncedResource[T]) ours(v, host T) error {
	if id, ours := translate.IdentityOf(host); !ours || id.Space != k.space.Name {
		return fmt.Errorf("%w: the host already has another object under the name that %s would get; ask the platform's admins to remove it", errForeign, v.GetName())
	}
	return nil
}

// update makes v's host object as wanted, if it is not. A reserved one becomes
// v's: only while v is there, as the name may be in other hands by now. Who
// reserves it again changes it, so that this comes late and fails.
func (k *syncedResource[T]) update(ctx context.Context, v, want, host T) (T, error) {
	var have T
	changed := false
	k.compute(ctx, func() {
		have = host.DeepCopyObject().(T)
		changed = k.updateHost(want, have)
	})
	if !changed {
		return host, nil
	}
	if id, _ := translate.IdentityOf(host); id.UID == "" {
		current := k.newObject()
		if err := k.virtualAPI.Get(ctx, client.ObjectKeyFromObject(v), current); err != nil {
			return host, err
		}
		if current.GetUID() != v.GetUID() {
			return host, apierrors.NewConflict(schema.GroupResource{Resource: k.name}, v.GetName(), errors.New("it is another one by now"))
		}
	}
	if k.mayUpdate != nil {
		if may, err := k.mayUpdate(ctx, have); err != nil || !may {
			return host, err
		}
	}
	return have, k.hostAPI.Update(ctx, have)
}

// settle ends a reconcile that the host, or a rule of the space, did not let
// pass: refusals are told to the tenant and tried again ever more rarely, until
// a change of v; other errors are retried as they come.
func (k *syncedResource[T]) settle(ctx context.Context, key types.NamespacedName, v T, hosted bool, err error) (time.Duration, error) {
	r, told := k.explain(v, err)
	if !told {
		return 0, fmt.Errorf("sync %s %s: %w", k.name, key, err)
	}
	r.message = brief(r.message)
	k.recorder.record(v, corev1.EventTypeWarning, r.reason, r.message)
	if k.reportRefusal != nil && !hosted { // syncStatus would write otherwise
		if err := k.reportRefusal(ctx, v, r); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, bounds.ErrExceeded) {
		k.bytes.keep(Key{Resource: k.name, NamespacedName: key})
	}
	if QuotaExceeded(err) && k.shortages.waits(Key{Resource: k.name, NamespacedName: key}) {
		return 0, errWaits
	}
	return 0, errRefused
}

// collect deletes a host object whose virtual object is gone or is another one.
func (k *syncedResource[T]) collect(ctx context.Context, key types.NamespacedName, host T) (time.Duration, error) {
	id, _ := translate.IdentityOf(host)
	if id.UID == "" {
		if wait := reservation - k.clock.Since(host.GetCreationTimestamp().Time); wait > 0 {
			return wait, nil
		}
		if k.writer.reserving(object{k.name, client.ObjectKeyFromObject(host)}) {
			return holdLag, nil // its request takes long
		}
	}
	current := k.newObject()
	err := k.virtualAPI.Get(ctx, key, current)
	if err == nil && (id.UID == "" || current.GetUID() == id.UID) {
		return time.Second, nil // the space's watch lags
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("look for %s %s in the space: %w", k.name, key, err)
	}
	return 0, k.deleteHost(ctx, host)
}

// deleteHost deletes precisely the object that was looked at.
func (k *syncedResource[T]) deleteHost(ctx context.Context, host T) error {
	if host.GetDeletionTimestamp() != nil {
		return nil
	}
	err := k.hostAPI.Delete(ctx, host, client.Preconditions{UID: ptr.To(host.GetUID()), ResourceVersion: ptr.To(host.GetResourceVersion())})
	return err
}

// live reads a host object past the watch.
func (k *syncedResource[T]) live(ctx context.Context, like T) (T, error) {
	host := k.newObject()
	err := k.hostAPI.Get(ctx, client.ObjectKeyFromObject(like), host)
	return host, err
}

func (k *syncedResource[T]) virtualObject(ctx context.Context, key types.NamespacedName) (v T, exists bool, err error) {
	if k.virtual == nil {
		v = k.newObject()
		err = k.virtualAPI.Get(ctx, key, v)
		return v, err == nil, client.IgnoreNotFound(err)
	}
	v, exists = inStore[T](k.virtual, key)
	return v, exists, nil
}

// inStore reads an object of the space from an informer.
func inStore[T client.Object](informer cache.SharedIndexInformer, key types.NamespacedName) (v T, exists bool) {
	item, exists, err := informer.GetIndexer().GetByKey(cache.ObjectName(key).String())
	if err != nil || !exists {
		return v, false
	}
	v, exists = item.(T)
	return v, exists
}

// keyOf is the key that a host object's events lead to; ok is false for one
// that is not synced.
func keyOf(name string, host client.Object) (key Key, ok bool) {
	id, ok := translate.IdentityOf(host)
	return Key{Resource: name, NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}}, ok
}
