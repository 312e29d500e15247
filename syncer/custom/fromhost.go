// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/translate"
)

// shown are the objects of the host, of one declaration, that a space shows.
type shown struct {
	*syncer
	declaration *declaration.Declaration
	virtual     cache.SharedIndexInformer

	mu sync.Mutex
	// written are the versions that this syncer wrote last, or found as they should be. What a tenant changes is another generation.
	written map[string]version
	at      map[string]time.Time // when this syncer wrote last
}

// undoPause is how long a change of a tenant may stay, so that a policy of the tenant that changes each write doesn't have it written without
// end.
const undoPause = time.Second

// version says which generation of a host object an object in the space was made of, and is itself.
type version struct {
	hostUID, uid               types.UID
	hostGeneration, generation int64
}

func versionOf(host, v client.Object) version {
	return version{host.GetUID(), v.GetUID(), host.GetGeneration(), v.GetGeneration()}
}

// show declares a resource whose objects come from the host. A change that a tenant makes is undone.
func (s *syncer) show(d *declaration.Declaration) error {
	informer, err := s.FromDeclared(d)
	if err != nil {
		return err
	}
	k := &shown{syncer: s, declaration: d, virtual: informer, written: map[string]version{}, at: map[string]time.Time{}}
	s.Work[d.Name] = k.reconcile
	byName := func(o client.Object, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: d.Name, NamespacedName: types.NamespacedName{Name: o.GetName()}})
	}
	s.FromSpace(informer, byName)
	s.FromHost(d.Name, func(o client.Object, enqueue func(engine.Key)) {
		byName(o, enqueue)
		s.referring(d.Name, o.GetName(), enqueue)
	})
	return nil
}

// referring enqueues the objects of the tenant that name an object of the host, which has come, gone, or changed.
func (s *syncer) referring(sync, name string, enqueue func(engine.Key)) {
	for _, sent := range s.sent {
		keys, err := sent.virtual.GetIndexer().IndexKeys(indexImported, sync+"/"+name)
		if err != nil {
			continue // there is no such index, which can't happen
		}
		for _, key := range keys {
			if name, err := cache.ParseObjectName(key); err == nil {
				enqueue(engine.Key{Resource: sent.Name, NamespacedName: types.NamespacedName(name)})
			}
		}
	}
}

func (k *shown) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	ready := k.Host.DeclaredFilled(k.declaration.Name) // before the object: the watch may be a new one
	host, hosted := hostcache.Get[*unstructured.Unstructured](k.Host, k.declaration.Name, "", key.Name)
	v, exists := engine.Stored[*unstructured.Unstructured](k.virtual, types.NamespacedName{Name: key.Name})
	ours := exists && (v.GetLabels()[translate.LabelManagedBy] == translate.ManagedBy || k.wrote(v))
	switch {
	case !hosted && ours && ready:
		k.forget(key.Name)
		uid := v.GetUID()
		return 0, client.IgnoreNotFound(k.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &uid}))
	case !hosted:
		return 0, nil
	case !exists:
		if !k.Settled(k.declaration.Name) {
			return 0, engine.ErrUnsettled // it may exist
		}
		made := k.declaration.Show(host)
		if err := k.VirtualAPI.Create(ctx, made); err != nil {
			if apierrors.IsAlreadyExists(err) {
				return 0, nil // the watch will deliver it
			}
			return 0, k.Refuse(made, err)
		}
		k.note(host, made)
		return 0, nil
	case !ours:
		k.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonTaken,
			"the platform offers an object of this name, which the space doesn't show while this one exists; delete or rename this one to use the platform's")
		return 0, nil
	}
	if k.isWritten(ctx, host, v) {
		return 0, k.status(ctx, v, host)
	}
	if wait := k.pause(key.Name); wait > 0 {
		return wait, nil
	}
	replaced := k.declaration.Shown(v, host)
	if err := k.VirtualAPI.Update(ctx, replaced); err != nil {
		return 0, k.Refuse(v, err)
	}
	k.note(host, replaced)
	return 0, k.status(ctx, replaced, host)
}

func (k *shown) status(ctx context.Context, v, host *unstructured.Unstructured) error {
	out, changed := k.declaration.ShowStatus(v, host)
	if !changed {
		return nil
	}
	if err := k.VirtualAPI.Status().Update(ctx, out); err != nil {
		return k.Refuse(v, err)
	}
	return nil
}

// note notes what was written.
func (k *shown) note(host, made *unstructured.Unstructured) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written[made.GetName()], k.at[made.GetName()] = versionOf(host, made), k.Clock.Now()
}

// wrote reports whether an object in the space was written here, whatever its labels are now.
func (k *shown) wrote(v client.Object) bool {
	return k.last(v.GetName()).uid == v.GetUID()
}

func (k *shown) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.written, name)
	delete(k.at, name)
}

// pause returns how long an object may not be written yet.
func (k *shown) pause(name string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, wrote := k.at[name]
	if !wrote {
		return 0
	}
	return undoPause - k.Clock.Since(at)
}

// isWritten reports whether an object in the space is of this version of the host's, and as it was written. What an earlier syncer wrote is
// known by the content of the object, and by nothing that a tenant could write elsewhere: no annotation claims it. A tenant that removes the
// label while no syncer runs has an object of its own instead, as if it had deleted this one and created another.
func (k *shown) isWritten(ctx context.Context, host, v *unstructured.Unstructured) bool {
	if len(v.GetLabels()) != 1 || v.GetLabels()[translate.LabelManagedBy] != translate.ManagedBy || len(v.GetAnnotations()) > 0 ||
		len(v.GetFinalizers()) > 0 || len(v.GetOwnerReferences()) > 0 {
		return false
	}
	if k.last(v.GetName()) == versionOf(host, v) {
		return true
	}
	shows := false
	k.Compute(ctx, func() { shows = k.declaration.Shows(v, host) })
	if shows {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.written[v.GetName()] = versionOf(host, v)
	}
	return shows
}

func (k *shown) last(name string) version {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.written[name]
}
