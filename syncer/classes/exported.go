// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// exportedClass describes a class resource of which Berth exports the tenant's objects to the host. The host's objects
// of the same resource are imported; see [importedClass].
type exportedClass[T client.Object] struct {
	*engine.Resource[T]
	check  func(v T) field.ErrorList // returns why v can't be exported
	export func(v T) T               // returns v's host object
}

func (c *exportedClass[T]) add() error {
	c.DeleteForbidden, c.NameLimit, c.ToHost, c.MakesRequests = true, translate.LimitSubdomain, c.hostClass, true
	engine.Add(c.Resource, nil)
	return nil
}

// hostClass returns v's host object.
func (c *exportedClass[T]) hostClass(ctx context.Context, v T) (host T, wanted bool, err error) {
	if !translate.IsTenantClass(v) {
		return host, false, nil
	}
	if err := engine.Forbid(c.check(v)); err != nil {
		return host, false, err
	}
	host = c.export(v)
	if there, exists := hostcache.Get[T](c.Host, c.Name, "", host.GetName()); exists {
		return host, true, c.Ours(v, there)
	}
	return host, true, c.SetOwner(ctx, host)
}

// ensure returns the name of v's host object, and creates it if necessary. The name is empty if v has none, because it
// is not the tenant's own or not allowed.
func (c *exportedClass[T]) ensure(ctx context.Context, v T) (name string, made bool, err error) {
	host, wanted, err := c.hostClass(ctx, v)
	if err == nil && wanted {
		if there, exists := hostcache.Get[T](c.Host, c.Name, "", host.GetName()); exists {
			return host.GetName(), false, c.Ours(v, there)
		}
		err = c.CreateBounded(ctx, host) // no quota counts it
	}
	if errors.As(err, &engine.Forbidden{}) || err == nil && !wanted {
		return "", false, nil
	}
	if apierrors.IsAlreadyExists(err) {
		err = c.There(ctx, v, host)
	}
	return host.GetName(), err == nil, err
}

func (s *Syncer) exportedClassesBound() engine.Bound {
	return s.Bound(bounds.ExportedClasses, "classes of the space on the host")
}

func (s *Syncer) exportedPriorities() *exportedClass[*schedulingv1.PriorityClass] {
	highest, preempt, _ := s.Sync.PriorityBound()
	return &exportedClass[*schedulingv1.PriorityClass]{
		Resource: &engine.Resource[*schedulingv1.PriorityClass]{
			Engine: s.Engine, Name: resources.ExportedPriorityClasses, Bound: s.exportedClassesBound(),
			Virtual:       s.Informers.Scheduling().V1().PriorityClasses().Informer(),
			UpdateHost:    translate.PushPriorityClass,
			NeedsRecreate: translate.OtherPriority,
		},
		check: func(*schedulingv1.PriorityClass) field.ErrorList { return nil },
		export: func(v *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
			return s.Space.ExportedPriorityClass(v, highest, preempt)
		},
	}
}

func (s *Syncer) exportedStorages() *exportedClass[*storagev1.StorageClass] {
	return &exportedClass[*storagev1.StorageClass]{
		Resource: &engine.Resource[*storagev1.StorageClass]{
			Engine: s.Engine, Name: resources.ExportedStorageClasses, Bound: s.exportedClassesBound(),
			Virtual:       s.Informers.Storage().V1().StorageClasses().Informer(),
			UpdateHost:    translate.PushStorageClass,
			NeedsRecreate: translate.OtherStorage,
		},
		check: func(v *storagev1.StorageClass) field.ErrorList {
			return translate.CheckStorageClass(v, s.Sync.Provisioners())
		},
		export: s.Space.ExportedStorageClass,
	}
}

func (s *Syncer) syncExportedPriorityClasses() error { return s.exportedPriorities().add() }

func (s *Syncer) syncExportedStorageClasses() error { return s.exportedStorages().add() }

// HostPriority returns the priority class of a pod on the host: an imported class, the tenant's own exported one, or the
// default of the space. If it is the default, the pod's priority counts only in the space.
func (s *Syncer) HostPriority(ctx context.Context, v *corev1.Pod) (string, error) {
	name, err := s.ownPriority(ctx, v.Spec.PriorityClassName)
	return cmp.Or(name, s.Space.Settings.Priorities.Default), err
}

// ownPriority returns the class on the host for a class of the space; empty if it has none there.
func (s *Syncer) ownPriority(ctx context.Context, name string) (string, error) {
	priorities := s.Space.Settings.Priorities
	if class, ok := hostcache.Imported[*schedulingv1.PriorityClass](s.Host, s.Sync, resources.PriorityClasses, name); ok && priorities.Imports(class) {
		return name, nil
	}
	own := s.exportedPriorities()
	class, exists := engine.Stored[*schedulingv1.PriorityClass](own.Virtual, types.NamespacedName{Name: name})
	if name == "" || !s.Sync.On(resources.ExportedPriorityClasses) {
		return "", nil
	}
	if !exists { // or the watch on classes is behind: the space's admission accepted the pod with this class
		class = &schedulingv1.PriorityClass{}
		if err := s.VirtualAPI.Get(ctx, types.NamespacedName{Name: name}, class); err != nil {
			return "", client.IgnoreNotFound(err)
		}
	}
	host, made, err := own.ensure(ctx, class)
	if err == nil && made { // the host's admission learns of a class from a watch, and rejects pods until then
		err = apierrors.NewNotFound(schema.GroupResource{Group: schedulingv1.GroupName, Resource: resources.PriorityClasses}, name)
	}
	return host, err
}

// HostStorage returns the storage class of a claim on the host: an imported class, or the tenant's own exported one. A
// claim without a class gets the default among the imported classes, because the host would use its own default,
// imported or not.
func (s *Syncer) HostStorage(ctx context.Context, v *corev1.PersistentVolumeClaim) (*string, error) {
	name := v.Spec.StorageClassName
	if name == nil {
		return s.defaultStorage()
	}
	if _, ok := hostcache.Imported[*storagev1.StorageClass](s.Host, s.Sync, resources.StorageClasses, *name); ok {
		return name, nil
	}
	own := s.exportedStorages()
	if class, exists := engine.Stored[*storagev1.StorageClass](own.Virtual, types.NamespacedName{Name: *name}); exists && s.Sync.On(resources.ExportedStorageClasses) {
		if host, _, err := own.ensure(ctx, class); err != nil || host != "" {
			return &host, err
		}
	}
	return nil, engine.Forbid(field.ErrorList{field.Forbidden(field.NewPath("spec", "storageClassName"),
		fmt.Sprintf("class %q does not exist, or the host does not offer it to spaces; see 'kubectl get storageclasses'", *name))})
}

// defaultStorage returns the default among the imported classes. If there are several, it is the newest, as in any
// cluster.
func (s *Syncer) defaultStorage() (*string, error) {
	var latest *storagev1.StorageClass
	for class := range hostcache.AllImported[*storagev1.StorageClass](s.Host, s.Sync, resources.StorageClasses) {
		if translate.IsDefaultStorage(class) && (latest == nil || translate.NewerClass(class, latest)) {
			latest = class
		}
	}
	if latest == nil {
		return nil, engine.Forbid(field.ErrorList{field.Forbidden(field.NewPath("spec", "storageClassName"),
			"the space has no default storage class; set a class that 'kubectl get storageclasses' lists")})
	}
	return &latest.Name, nil
}
