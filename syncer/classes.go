// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"
	"iter"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// class is a kind of the host's that spaces see, under its own names.
type class[T client.Object] struct {
	*Syncer
	name    string // plural, as in URLs
	virtual cache.SharedIndexInformer
	up      func(host T) T
	pull    func(want, have T) (changed, recreate bool)
	// status, if set, copies onto have what the host says of its class, and
	// reports a difference.
	status func(host, have T) bool
}

// show shows the host's classes in the space, those that the admin chose. A
// class of that name that the tenant made gives way: who names it means the
// host's.
func show[T client.Object](c *class[T]) error {
	c.work[c.name] = c.reconcile
	byName := func(obj client.Object, enqueue func(Key)) {
		enqueue(Key{Kind: c.name, NamespacedName: types.NamespacedName{Name: obj.GetName()}})
	}
	c.fromSpace(c.virtual, byName)
	c.fromHost(c.name, byName)
	return nil
}

func (c *class[T]) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	host, hosted := shown[T](c.Syncer, c.name, key.Name)
	v, exists := inStore[T](c.virtual, types.NamespacedName{Name: key.Name})
	switch {
	case !hosted && exists && v.GetLabels()[translate.LabelManagedBy] == translate.ManagedBy:
		return 0, c.remove(ctx, v)
	case !hosted:
		return 0, nil
	case !exists:
		err := c.virtualAPI.Create(ctx, c.up(host))
		if apierrors.IsAlreadyExists(err) {
			err = nil // the watch brings it
		}
		return 0, err
	}
	have := v.DeepCopyObject().(T)
	changed, recreate := c.pull(c.up(host), have)
	switch {
	case recreate:
		return 0, c.remove(ctx, v)
	case changed:
		return 0, c.virtualAPI.Update(ctx, have)
	case c.status != nil && c.status(host, have):
		return 0, c.virtualAPI.Status().Update(ctx, have)
	default:
		return 0, nil
	}
}

func (c *class[T]) remove(ctx context.Context, v T) error {
	uid := v.GetUID()
	return c.virtualAPI.Delete(ctx, v, client.Preconditions{UID: &uid})
}

// shown is a class of the host's, if the admin shows it to spaces.
func shown[T client.Object](s *Syncer, kind, name string) (class T, ok bool) {
	class, ok = cached[T](s.host, kind, "", name)
	if !ok || !s.host.sync.Selects(kind).Matches(labels.Set(class.GetLabels())) {
		return class, false
	}
	if class.GetLabels()[translate.LabelSpace] != "" {
		return class, false // some tenant's, whatever else is on it
	}
	return class, kind != priorityClasses || translate.ShownPriority(name)
}

// hostClasses are those of the host's of a kind that are shown to spaces.
func hostClasses[T client.Object](s *Syncer, kind string) iter.Seq[T] {
	return func(yield func(T) bool) {
		f := s.host.routers[kind]
		if f == nil {
			return // it is switched off
		}
		for _, item := range f.all() {
			if o, ok := item.(client.Object); ok {
				if class, ok := shown[T](s, kind, o.GetName()); ok && !yield(class) {
					return
				}
			}
		}
	}
}

// served reports whether what names a class is for the host: of a class that the
// tenant made itself, it is for whatever the tenant runs.
func served[T client.Object](s *Syncer, kind string, virtual cache.SharedIndexInformer, name string, path *field.Path) (bool, field.ErrorList) {
	if _, ok := shown[T](s, kind, name); ok {
		return true, nil
	}
	own, exists := inStore[T](virtual, types.NamespacedName{Name: name})
	if exists && own.GetLabels()[translate.LabelManagedBy] != translate.ManagedBy {
		return false, nil
	}
	return false, field.ErrorList{field.Forbidden(path, fmt.Sprintf("there is no class %q for spaces; see 'kubectl get %s'", name, kind))}
}

func (s *Syncer) syncStorageClasses() error {
	return show(&class[*storagev1.StorageClass]{
		Syncer: s, name: storageClasses, virtual: s.informers.Storage().V1().StorageClasses().Informer(),
		up: translate.StorageClass, pull: translate.PullStorageClass,
	})
}

func (s *Syncer) syncIngressClasses() error {
	return show(&class[*networkingv1.IngressClass]{
		Syncer: s, name: ingressClasses, virtual: s.informers.Networking().V1().IngressClasses().Informer(),
		up: translate.IngressClass, pull: translate.PullIngressClass,
	})
}

func (s *Syncer) syncRuntimeClasses() error {
	return show(&class[*nodev1.RuntimeClass]{
		Syncer: s, name: runtimeClasses, virtual: s.informers.Node().V1().RuntimeClasses().Informer(),
		up: translate.RuntimeClass, pull: translate.PullRuntimeClass,
	})
}

func (s *Syncer) syncPriorityClasses() error {
	return show(&class[*schedulingv1.PriorityClass]{
		Syncer: s, name: priorityClasses, virtual: s.informers.Scheduling().V1().PriorityClasses().Informer(),
		up: translate.PriorityClass, pull: translate.PullPriorityClass,
	})
}
