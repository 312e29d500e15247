// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
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
	// written are the versions that were written last. What a tenant changes is another generation.
	written map[string]version
}

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
	k := &shown{syncer: s, declaration: d, virtual: informer, written: map[string]version{}}
	s.Work[d.Name] = k.reconcile
	byName := func(o client.Object, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: d.Name, NamespacedName: types.NamespacedName{Name: o.GetName()}})
	}
	s.FromSpace(informer, byName)
	s.FromHost(d.Name, func(o client.Object, enqueue func(engine.Key)) {
		byName(o, enqueue)
		s.referring(enqueue)
	})
	return nil
}

// referring enqueues the objects of the tenant, which may name an object of the host that comes or goes.
func (s *syncer) referring(enqueue func(engine.Key)) {
	for _, sent := range s.sent {
		for _, item := range sent.virtual.GetStore().List() {
			if v, ok := item.(client.Object); ok {
				enqueue(engine.Key{Resource: sent.Name, NamespacedName: client.ObjectKeyFromObject(v)})
			}
		}
	}
}

func (k *shown) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	host, hosted := hostcache.Get[*unstructured.Unstructured](k.Host, k.declaration.Name, "", key.Name)
	v, exists := engine.Stored[*unstructured.Unstructured](k.virtual, types.NamespacedName{Name: key.Name})
	ours := exists && v.GetLabels()[translate.LabelManagedBy] == translate.ManagedBy
	switch {
	case !hosted && ours && k.Host.DeclaredReady(k.declaration.Name) == nil:
		uid := v.GetUID()
		return 0, client.IgnoreNotFound(k.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &uid}))
	case !hosted:
		return 0, nil
	case !exists:
		made := k.declaration.Show(host)
		if err := k.VirtualAPI.Create(ctx, made); err != nil {
			if apierrors.IsAlreadyExists(err) {
				return 0, nil // the watch will deliver it
			}
			return 0, fmt.Errorf("show %s %s: %w", k.declaration.Name, key.Name, err)
		}
		k.note(host, made)
		return 0, nil
	case !ours:
		k.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonTaken,
			"the platform offers an object of this name, which the space doesn't show while this one exists; delete or rename this one to use the platform's")
		return 0, nil
	}
	if k.isWritten(host, v) {
		return 0, k.status(ctx, v, host)
	}
	replaced := k.declaration.Shown(v, host)
	if err := k.VirtualAPI.Update(ctx, replaced); err != nil {
		return 0, fmt.Errorf("show %s %s: %w", k.declaration.Name, key.Name, err)
	}
	k.note(host, replaced)
	return 0, k.status(ctx, replaced, host)
}

func (k *shown) status(ctx context.Context, v, host *unstructured.Unstructured) error {
	out, changed := k.declaration.ShowStatus(v, host)
	if !changed {
		return nil
	}
	return k.VirtualAPI.Status().Update(ctx, out)
}

// note notes what was written.
func (k *shown) note(host, made *unstructured.Unstructured) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written[made.GetName()] = versionOf(host, made)
}

// isWritten reports whether an object in the space is as it was written, and of this version of the host's.
func (k *shown) isWritten(host, v *unstructured.Unstructured) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.written[v.GetName()] == versionOf(host, v) && len(v.GetLabels()) == 1 && len(v.GetAnnotations()) == 0 &&
		len(v.GetFinalizers()) == 0 && len(v.GetOwnerReferences()) == 0
}
