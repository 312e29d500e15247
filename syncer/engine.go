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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// reservation is how long a host object that was made ahead of its virtual
// object (see [Host.ReserveService]) may wait for it.
const reservation = time.Minute

// kind declares what is special about one kind that is synced down. T is a
// pointer to its Go type, the same on both sides.
type kind[T client.Object] struct {
	*Syncer
	name    string // plural, as in URLs
	limit   int    // of names on the host, in bytes
	cluster bool   // it is in no namespace, on either side
	strict  bool   // what the space's rules forbid (by now) must not go on
	fresh   func() T
	virtual cache.SharedIndexInformer // nil: read from the API
	bound   bound                     // of host objects; the zero value is none

	// used, if set, reports whether what key names should be on the host, before
	// it is read.
	used func(key types.NamespacedName) (bool, error)
	// down returns v's wanted host object, or false if it should have none.
	down func(ctx context.Context, v T) (T, bool, error)
	// asks says that down makes requests.
	asks bool
	// push copies onto have what the tenant owns, and reports a difference.
	push func(want, have T) bool
	// anew, if set, reports a difference that only another host object mends.
	anew func(want, have T) bool
	// mayUpdate, if set, is asked before a host object is updated. If it must not be
	// yet, an event of what keeps it from that brings its key back.
	mayUpdate func(ctx context.Context, want T) (bool, error)
	// pull, if set, writes back to the space what the host owns, and says when
	// it wants to be called again at the latest (0: on the next change).
	pull func(ctx context.Context, v, host T) (time.Duration, error)
	// born, if set, is what of a wanted host object a host takes when it is made.
	born func(want T) T
	// made, if set, is told what a host made of what it was sent.
	made func(v, sent, host T)
	// amend, if set, changes on a host object that is there what takes requests
	// of its own. It returns what it made of it, with an error, too.
	amend func(ctx context.Context, v, want, host T) (T, error)
	// relabel, if set, keeps the labels or the selector of a host object up to date
	// of which the space's rules forbid another one: by them objects find each other.
	relabel func(ctx context.Context, v, host T) error
	// lost, if set, is called before a missing host object is made, and reports
	// whether it dealt with v: then none is made.
	lost func(ctx context.Context, v T) (bool, error)
	// named, if set, completes a wanted host object that is about to be made by
	// what it needs there, or says why it can't have it.
	named func(ctx context.Context, v, want T) error
	// end, if set, takes over while v is being deleted; exists tells whether
	// host is there.
	end func(ctx context.Context, v, host T, exists bool) error
	// belongs, if set, says whose work a host object is that has no identity.
	belongs func(host T) (Key, bool)
	// seen, if set, is told each host object that came, changed or went.
	seen func(host T, enqueue func(Key))
	// aside, if set, reports that a change of a virtual object concerns no others.
	aside func(was, is T) bool
	// denied, if set, writes to v itself why the host does not take it.
	denied func(ctx context.Context, v T, r refusal) error
}

func (k *kind[T]) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	at := k.space.HostNamespace()
	if k.cluster {
		at = ""
	}
	host, hosted := cached[T](k.host, k.name, at, k.space.HostName(key.Namespace, key.Name, k.limit))
	id := translate.Identity{}
	if hosted {
		id, hosted = translate.IdentityOf(host)
		hosted = hosted && id.Space == k.space.Name
	}
	if k.used != nil {
		used, err := k.used(key)
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
	if k.end != nil && v.GetDeletionTimestamp() != nil {
		return 0, k.end(ctx, v, host, hosted)
	}
	want, wanted, err := k.wanted(ctx, v)
	if err != nil {
		var again time.Duration
		if hosted && k.relabel != nil && errors.As(err, &forbidden{}) && !k.held(v, host) {
			err = errors.Join(err, k.relabel(ctx, v, host))
		}
		if hosted && k.pull != nil { // what runs already is reported all the same, and its tokens are refreshed
			var pullErr error
			again, pullErr = k.pull(ctx, v, host)
			err = errors.Join(err, pullErr)
		}
		if hosted && k.strict && errors.As(err, &forbidden{}) {
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
	if hosted && k.anew != nil && k.anew(want, host) {
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
		if paced := (*pacedError)(nil); hosted && k.pull != nil && errors.As(err, &paced) { // its write waits, what the host tells does not
			_, pullErr := k.pull(ctx, v, host)
			err = errors.Join(err, pullErr)
		}
		return k.settle(ctx, key, v, hosted, err)
	}
	if any(host) == any(*new(T)) {
		return 0, nil
	}
	if k.amend != nil {
		host, err = k.amend(ctx, v, want, host)
	}
	var again time.Duration
	if k.pull != nil {
		var pullErr error
		again, pullErr = k.pull(ctx, v, host)
		if err == nil && !QuotaExceeded(pullErr) && !errors.Is(pullErr, bounds.ErrExceeded) {
			return again, pullErr
		}
		err = errors.Join(err, pullErr)
	}
	if err != nil {
		_, err = k.settle(ctx, key, v, true, err)
	}
	return again, err
}

// wanted is down, as fast as the syncer may compute.
func (k *kind[T]) wanted(ctx context.Context, v T) (want T, wanted bool, err error) {
	if k.asks {
		return k.down(ctx, v)
	}
	k.compute(ctx, func() { want, wanted, err = k.down(ctx, v) })
	return want, wanted, err
}

// held reports whether v is not yet, or not again, what the host object is of.
func (k *kind[T]) held(v, host T) bool {
	return k.writer.held(object{k.name, client.ObjectKeyFromObject(host)}, version(v.GetResourceVersion()))
}

// create makes v's host object, unless it turns out that it is there already
// (the watch may lag) or that v must not have one any more: then host is nil.
func (k *kind[T]) create(ctx context.Context, v, want T) (host T, err error) {
	if k.lost != nil {
		if done, err := k.lost(ctx, v); err != nil || done {
			return host, err
		}
	}
	if k.named != nil {
		if err := k.named(ctx, v, want); err != nil {
			return host, err
		}
	}
	born := want
	if k.born != nil {
		born = k.born(want)
	}
	sent := born
	if k.made != nil {
		sent = born.DeepCopyObject().(T)
	}
	err = k.createHost(ctx, v, born)
	if err == nil && k.made != nil {
		k.made(v, sent, born)
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return host, k.there(ctx, v, want) // the watch brings it
	case apierrors.IsInvalid(err): // a service's address is looked at before its name
		if there := k.there(ctx, v, want); !apierrors.IsNotFound(there) {
			return host, there
		}
	}
	return born, err
}

// there looks at what keeps a wanted host object from being made, past the watch:
// it must be the space's.
func (k *kind[T]) there(ctx context.Context, v, want T) error {
	host, err := k.live(ctx, want)
	if err != nil {
		return err
	}
	return k.ours(v, host)
}

// ours says that a host object under v's name is another's, if it is.
func (k *kind[T]) ours(v, host T) error {
	if id, ours := translate.IdentityOf(host); !ours || id.Space != k.space.Name {
		return fmt.Errorf("%w: the host already has another object under the name that %s would get; ask the platform's admins to remove it", errForeign, v.GetName())
	}
	return nil
}

// update makes v's host object as wanted, if it is not. A reserved one becomes
// v's: only while v is there, as the name may be in other hands by now. Who
// reserves it again changes it, so that this comes late and fails.
func (k *kind[T]) update(ctx context.Context, v, want, host T) (T, error) {
	var have T
	changed := false
	k.compute(ctx, func() {
		have = host.DeepCopyObject().(T)
		changed = k.push(want, have)
	})
	if !changed {
		return host, nil
	}
	if id, _ := translate.IdentityOf(host); id.UID == "" {
		current := k.fresh()
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
	return have, k.writer.Update(ctx, have)
}

// settle ends a reconcile that the host, or a rule of the space, did not let
// pass: refusals are told to the tenant and tried again ever more rarely, until
// a change of v; other errors are retried as they come.
func (k *kind[T]) settle(ctx context.Context, key types.NamespacedName, v T, hosted bool, err error) (time.Duration, error) {
	r, told := k.explain(v, err)
	if !told {
		return 0, fmt.Errorf("sync %s %s: %w", k.name, key, err)
	}
	r.message = brief(r.message)
	k.recorder.record(v, corev1.EventTypeWarning, r.reason, r.message)
	if k.denied != nil && !hosted { // pull would write otherwise
		if err := k.denied(ctx, v, r); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, bounds.ErrExceeded) {
		k.bytes.keep(Key{Kind: k.name, NamespacedName: key})
	}
	if QuotaExceeded(err) && k.shortages.waits(Key{Kind: k.name, NamespacedName: key}) {
		return 0, errWaits
	}
	return 0, errRefused
}

// collect deletes a host object whose virtual object is gone or is another one.
func (k *kind[T]) collect(ctx context.Context, key types.NamespacedName, host T) (time.Duration, error) {
	id, _ := translate.IdentityOf(host)
	if id.UID == "" {
		if wait := reservation - k.clock.Since(host.GetCreationTimestamp().Time); wait > 0 {
			return wait, nil
		}
		if k.writer.reserving(object{k.name, client.ObjectKeyFromObject(host)}) {
			return holdLag, nil // its request takes long
		}
	}
	current := k.fresh()
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
func (k *kind[T]) deleteHost(ctx context.Context, host T) error {
	if host.GetDeletionTimestamp() != nil {
		return nil
	}
	err := k.writer.Delete(ctx, host, client.Preconditions{UID: ptr.To(host.GetUID()), ResourceVersion: ptr.To(host.GetResourceVersion())})
	return err
}

// live reads a host object past the watch.
func (k *kind[T]) live(ctx context.Context, like T) (T, error) {
	host := k.fresh()
	err := k.writer.Get(ctx, client.ObjectKeyFromObject(like), host)
	return host, err
}

func (k *kind[T]) virtualObject(ctx context.Context, key types.NamespacedName) (v T, exists bool, err error) {
	if k.virtual == nil {
		v = k.fresh()
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
	return Key{Kind: name, NamespacedName: types.NamespacedName{Namespace: id.Namespace, Name: id.Name}}, ok
}

// createOnHost tries again soon when the host has a conflict: it is not over the
// object, but over the quota, which others count up at the same time. The host's
// API server reads the quota anew within milliseconds.
func createOnHost(ctx context.Context, host client.Client, object client.Object) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, contention(), func(ctx context.Context) (done bool, err error) {
		last = host.Create(ctx, object)
		if apierrors.IsConflict(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// contention is how long a write waits for others to count up the quota: a second
// in all.
func contention() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.7, Jitter: 0.5, Steps: 10}
}
