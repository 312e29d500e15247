// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// exportedClass is a resource of classes of which Berth exports the tenant's own to
// the host, beside [importedClass], by which spaces import the host's.
type exportedClass[T client.Object] struct {
	*syncedResource[T]
	check  func(v T) field.ErrorList // why v can't be exported
	export func(v T) T               // returns v's host object
}

func (c *exportedClass[T]) add() error {
	c.clusterScoped, c.deleteForbidden, c.nameLimit, c.toHost, c.makesRequests = true, true, translate.LimitSubdomain, c.hostClass, true
	add(c.syncedResource, nil)
	return nil
}

// hostClass is v's host object.
func (c *exportedClass[T]) hostClass(ctx context.Context, v T) (host T, wanted bool, err error) {
	if !translate.IsTenantClass(v) {
		return host, false, nil
	}
	if err := forbids(c.check(v)); err != nil {
		return host, false, err
	}
	host = c.export(v)
	if there, exists := cached[T](c.host, c.name, "", host.GetName()); exists {
		return host, true, c.ours(v, there)
	}
	// It is in no namespace, and goes with the space's all the same.
	ns := &corev1.Namespace{}
	if err := c.host.reader.Get(ctx, types.NamespacedName{Name: c.space.HostNamespace()}, ns); err != nil {
		return host, false, fmt.Errorf("read the space's host namespace: %w", err)
	}
	host.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}})
	return host, true, nil
}

// ensure returns the name of v's host object, which it makes if it is not there.
// It is empty if v has none: it is not the tenant's own, or not allowed.
func (c *exportedClass[T]) ensure(ctx context.Context, v T) (name string, made bool, err error) {
	host, wanted, err := c.hostClass(ctx, v)
	if err == nil && wanted {
		if there, exists := cached[T](c.host, c.name, "", host.GetName()); exists {
			return host.GetName(), false, c.ours(v, there)
		}
		err = c.createBounded(ctx, host) // no quota counts it
	}
	if errors.As(err, &forbidden{}) || err == nil && !wanted {
		return "", false, nil
	}
	if apierrors.IsAlreadyExists(err) {
		err = c.there(ctx, v, host)
	}
	return host.GetName(), err == nil, err
}

func (s *classSyncer) exportedClassesBound() bound {
	return s.bound(bounds.ExportedClasses, "classes of its own on the host")
}

func (s *classSyncer) exportedPriorities() *exportedClass[*schedulingv1.PriorityClass] {
	highest, preempt, _ := s.host.Sync.PriorityBound()
	return &exportedClass[*schedulingv1.PriorityClass]{
		syncedResource: &syncedResource[*schedulingv1.PriorityClass]{
			Engine: s.Engine, name: resources.ExportedPriorityClasses, bound: s.exportedClassesBound(),
			newObject:     func() *schedulingv1.PriorityClass { return &schedulingv1.PriorityClass{} },
			virtual:       s.informers.Scheduling().V1().PriorityClasses().Informer(),
			updateHost:    translate.PushPriorityClass,
			needsRecreate: translate.OtherPriority,
		},
		check: func(*schedulingv1.PriorityClass) field.ErrorList { return nil },
		export: func(v *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
			return s.space.ExportedPriorityClass(v, highest, preempt)
		},
	}
}

func (s *classSyncer) exportedStorages() *exportedClass[*storagev1.StorageClass] {
	return &exportedClass[*storagev1.StorageClass]{
		syncedResource: &syncedResource[*storagev1.StorageClass]{
			Engine: s.Engine, name: resources.ExportedStorageClasses, bound: s.exportedClassesBound(),
			newObject:     func() *storagev1.StorageClass { return &storagev1.StorageClass{} },
			virtual:       s.informers.Storage().V1().StorageClasses().Informer(),
			updateHost:    translate.PushStorageClass,
			needsRecreate: translate.OtherStorage,
		},
		check: func(v *storagev1.StorageClass) field.ErrorList {
			return translate.CheckStorageClass(v, s.host.Sync.Provisioners())
		},
		export: s.space.ExportedStorageClass,
	}
}

func (s *classSyncer) syncExportedPriorityClasses() error { return s.exportedPriorities().add() }

func (s *classSyncer) syncExportedStorageClasses() error { return s.exportedStorages().add() }

// hostPriority is the class of the host's that a pod of v's has there: an imported
// one, or the tenant's own. Without any it counts in the space only, as on
// the host it could put other spaces' pods out.
func (s *classSyncer) hostPriority(ctx context.Context, v *corev1.Pod) (string, error) {
	name := v.Spec.PriorityClassName
	if _, ok := imported[*schedulingv1.PriorityClass](s.host, resources.PriorityClasses, name); ok {
		return name, nil
	}
	own := s.exportedPriorities()
	class, exists := inStore[*schedulingv1.PriorityClass](own.virtual, types.NamespacedName{Name: name})
	if name == "" || !s.host.Sync.On(resources.ExportedPriorityClasses) {
		return "", nil
	}
	if !exists { // or its watch is behind that of pods, which the space's admission has let name it
		class = &schedulingv1.PriorityClass{}
		if err := s.virtualAPI.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
			return "", client.IgnoreNotFound(err)
		}
	}
	host, made, err := own.ensure(ctx, class)
	if err == nil && made { // the host's admission learns of it from a watch, and has refused pods until then
		err = apierrors.NewNotFound(schema.GroupResource{Group: schedulingv1.GroupName, Resource: resources.PriorityClasses}, name)
	}
	return host, err
}

// hostStorage is the class of the host's that a claim of v's has there: an imported
// one, or the tenant's own. A claim that names none gets the default one of the
// imported ones: the host would give it its own, imported or not.
func (s *classSyncer) hostStorage(ctx context.Context, v *corev1.PersistentVolumeClaim) (*string, error) {
	name := v.Spec.StorageClassName
	if name == nil {
		return s.defaultStorage()
	}
	if _, ok := imported[*storagev1.StorageClass](s.host, resources.StorageClasses, *name); ok {
		return name, nil
	}
	own := s.exportedStorages()
	if class, exists := inStore[*storagev1.StorageClass](own.virtual, types.NamespacedName{Name: *name}); exists && s.host.Sync.On(resources.ExportedStorageClasses) {
		if host, _, err := own.ensure(ctx, class); err != nil || host != "" {
			return &host, err
		}
	}
	return nil, forbids(field.ErrorList{field.Forbidden(field.NewPath("spec", "storageClassName"),
		fmt.Sprintf("there is no class %q for spaces; see 'kubectl get storageclasses'", *name))})
}

// defaultStorage is the default one of the imported classes; of
// several, as anywhere, the latest.
func (s *classSyncer) defaultStorage() (*string, error) {
	var latest *storagev1.StorageClass
	for class := range importedClasses[*storagev1.StorageClass](s.host, resources.StorageClasses) {
		if translate.IsDefaultStorage(class) && (latest == nil || translate.NewerClass(class, latest)) {
			latest = class
		}
	}
	if latest == nil {
		return nil, forbids(field.ErrorList{field.Forbidden(field.NewPath("spec", "storageClassName"),
			"there is no default class for spaces; name a class, see 'kubectl get storageclasses'")})
	}
	return &latest.Name, nil
}
