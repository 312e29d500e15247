// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spaceobjects reads, watches, and writes the Space objects of a platform on its host.
package spaceobjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

const (
	// fieldManager is the field manager of the platform's own writes, configManager that of the spaces in its
	// configuration.
	fieldManager, configManager = "berth", "berth-config"
	// defineTimeout limits how long to wait until the host serves a definition.
	defineTimeout = 15 * time.Second
	// Reconcilers is how many spaces are reconciled at once.
	Reconcilers = 16
)

// Objects are the Space objects of a platform on its host. They are safe for concurrent use, except for [Objects.Watch] and
// [Objects.Run], which may be called once each, in this order.
type Objects struct {
	Client   client.WithWatch
	platform string
	store    cache.Store // the cache of the watch, by name
	// Queue contains the names of the spaces to reconcile.
	Queue workqueue.TypedRateLimitingInterface[string]
}

// Open returns the Space objects of a platform. It reads nothing yet.
func Open(host *rest.Config, platform string) (*Objects, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make client for Space objects: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil) // without discovery, which may not contain the definitions yet
	mapper.Add(v1alpha1.GroupVersion.WithKind("Space"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("PublishedObject"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("SystemRole"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("CRDShare"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("ResourceSync"), meta.RESTScopeRoot)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	config := rest.CopyConfig(host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	config.ContentType, config.AcceptContentTypes = "", ""
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client for Space objects: %w", err)
	}
	return &Objects{
		Client: c, platform: platform, store: cache.NewStore(cache.MetaNamespaceKeyFunc),
		Queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute)),
	}, nil
}

// Define installs the CustomResourceDefinitions on the host, and waits until the host serves them. If the account may not install
// them, somebody else has to, and Define waits for those only that a platform reads.
func (s *Objects) Define(ctx context.Context) error {
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		have := &apiextensionsv1.CustomResourceDefinition{}
		//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
		err := s.Client.Patch(ctx, definition, client.Apply, client.FieldOwner(fieldManager), client.ForceOwnership)
		forbidden := apierrors.IsForbidden(err)
		if err != nil && !forbidden {
			return fmt.Errorf("install definition %s: %w", definition.Name, err)
		}
		if forbidden && !slices.Contains([]string{"Space", "PublishedObject"}, definition.Spec.Names.Kind) {
			continue
		}
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(definition), have); apierrors.IsForbidden(err) {
			continue // the wait below fails if it is missing
		}
		err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, defineTimeout, true, func(ctx context.Context) (bool, error) {
			if err := s.Client.Get(ctx, client.ObjectKeyFromObject(definition), have); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			for _, c := range have.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
		switch {
		case err != nil && forbidden:
			return fmt.Errorf("wait for definition %s, which Berth's account may not install: %w; install that of the chart, or of api/crds in the source code", definition.Name, err)
		case err != nil:
			return fmt.Errorf("install definition %s: %w", definition.Name, err)
		}
	}
	return nil
}

// Get returns an object from the watch, which must not be changed; nil if there is none.
func (s *Objects) Get(name string) *v1alpha1.Space {
	item, ok, err := s.store.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	object, _ := item.(*v1alpha1.Space)
	return object
}

// All returns the objects from the watch, which must not be changed.
func (s *Objects) All() (all []*v1alpha1.Space) {
	for _, item := range s.store.List() {
		if object, ok := item.(*v1alpha1.Space); ok {
			all = append(all, object)
		}
	}
	return all
}

// Ensure creates the object of a space if there is none.
func (s *Objects) Ensure(ctx context.Context, name, store string) error {
	object := &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}, Annotations: map[string]string{translate.AnnotationStore: store}},
		Spec:       v1alpha1.SpaceSpec{PlatformName: s.platform},
	}
	err := s.Client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if claimed := object.Annotations[translate.AnnotationStore]; err == nil && (object.Spec.PlatformName != s.platform || claimed != "" && claimed != store) {
			err = ErrForeign
		}
	}
	if err != nil {
		return fmt.Errorf("create Space object %s: %w", name, err)
	}
	return nil
}

// ErrForeign is returned for the object of a space whose store belongs to another platform.
var ErrForeign = fmt.Errorf("%w: the Space object of that name belongs to another store; name the space differently, or, to have this platform serve it, "+
	"remove the annotation %s from the object", isolation.ErrTaken, translate.AnnotationStore)

// Apply writes the object of a space as configured. store is the ID of its store; "" if the platform is yet to claim the object.
func (s *Objects) Apply(ctx context.Context, space *v1alpha1.Space, store string) error {
	have := &v1alpha1.Space{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: space.Name}, have); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Space object %s: %w", space.Name, err)
	}
	if claimed := have.Annotations[translate.AnnotationStore]; claimed != "" && claimed != store {
		return ErrForeign
	}
	if !have.DeletionTimestamp.IsZero() {
		return nil // a change of its policy must not affect the deletion
	}
	want := &v1alpha1.Space{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Space"},
		ObjectMeta: metav1.ObjectMeta{
			Name: space.Name, Labels: space.Labels, Annotations: map[string]string{},
		},
		Spec: space.Spec,
	}
	if store != "" {
		want.Annotations[translate.AnnotationStore], want.Finalizers = store, []string{v1alpha1.Finalizer}
	}
	for key, value := range space.Annotations {
		want.Annotations[key] = value
	}
	want.Spec.PlatformName = s.platform
	//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
	if err := s.Client.Patch(ctx, want, client.Apply, client.FieldOwner(configManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply Space object %s: %w", space.Name, err)
	}
	return nil
}

// Claim adds the finalizer, and the annotation with the ID of the store, to an object. It fails with a conflict if the
// object has changed in the meantime.
func (s *Objects) Claim(ctx context.Context, object *v1alpha1.Space, store string) error {
	claimed := object.DeepCopy()
	controllerutil.AddFinalizer(claimed, v1alpha1.Finalizer)
	metav1.SetMetaDataAnnotation(&claimed.ObjectMeta, translate.AnnotationStore, store)
	if err := s.Client.Patch(ctx, claimed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("claim Space object %s: %w", object.Name, err)
	}
	return nil
}

// Release removes the finalizer from an object when nothing is left of its space.
func (s *Objects) Release(ctx context.Context, object *v1alpha1.Space) error {
	current := &v1alpha1.Space{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), current)
	if released := current.DeepCopy(); err == nil && current.UID == object.UID && controllerutil.RemoveFinalizer(released, v1alpha1.Finalizer) {
		err = s.Client.Patch(ctx, released, client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{}))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release Space object %s: %w", object.Name, err)
	}
	return nil
}

// Watch follows the objects until the returned function is called, and adds those that were added, changed, or deleted to the queue. It
// returns when it has read all that there are, as they are now, or with an error if the host rejects that.
func (s *Objects) Watch(ctx context.Context) (stop func(), err error) {
	failed := make(chan error, 1) // a reflector tries again, and tells nobody
	enqueue := func(item any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(item); err == nil {
			s.Queue.Add(key)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				if o.ResourceVersion == "0" {
					o.ResourceVersion = "" // the latest objects: an earlier one may name a shard that doesn't have the space any more
				}
				list := &v1alpha1.SpaceList{}
				err := s.Client.List(ctx, list, s.selected(o))
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return s.Client.Watch(ctx, &v1alpha1.SpaceList{}, s.selected(o))
			},
		},
		ObjectType: &v1alpha1.Space{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(was, is any) {
			if matters(was, is) {
				enqueue(is)
			}
		}, DeleteFunc: enqueue},
		Transform: withoutManagedFields,
	})
	s.store = store
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	safego.Go(&group, "watch Space objects", func() { controller.RunWithContext(life) }, nil)
	stop = func() {
		cancel()
		group.Wait()
	}
	select {
	case <-controller.HasSyncedChecker().Done():
		return stop, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case err = <-failed:
	}
	stop()
	if apierrors.IsNotFound(err) {
		return nil, errors.New("the host has no definition of Space objects; install that of the chart, or of api/crds in the source code")
	}
	return nil, fmt.Errorf("list Space objects: %w", err)
}

// Run calls reconcile for each object in the queue until ctx ends, never concurrently for the same name. Errors are retried with
// increasing pauses. If reconcile returns a duration, it is called again after that.
func (s *Objects) Run(ctx context.Context, reconcile func(ctx context.Context, name string) (again time.Duration, err error), failed func(name string, err error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for range Reconcilers {
		safego.Go(&group, "reconcile spaces", func() {
			for s.next(ctx, reconcile, failed) {
			}
		}, nil)
	}
	return func() {
		cancel()
		s.Queue.ShutDown()
		group.Wait()
	}
}

// matters reports whether a change of an object requires a reconcile. Most changes of the status don't: the platform itself
// writes it, also to report an error, and that must not trigger a retry. Which shard the space has is the operator's word.
func matters(was, is any) bool {
	before, ok := was.(*v1alpha1.Space)
	after, isSpace := is.(*v1alpha1.Space)
	return !ok || !isSpace || before.UID != after.UID || before.Generation != after.Generation || before.Status.Shard != after.Status.Shard || before.Status.MovingTo != after.Status.MovingTo || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!slices.Equal(before.Finalizers, after.Finalizers) || !maps.Equal(before.Annotations, after.Annotations) || !maps.Equal(before.Labels, after.Labels)
}

// withoutManagedFields removes managed fields to save memory. It is a [cache.InformerOptions.Transform].
func withoutManagedFields(item any) (any, error) {
	if object, ok := item.(*v1alpha1.Space); ok {
		object.ManagedFields = nil
	}
	return item, nil
}

func (s *Objects) selected(o metav1.ListOptions) client.ListOption {
	return &client.ListOptions{Raw: &o, FieldSelector: fields.OneTermEqualSelector("spec.platformName", s.platform)}
}

func (s *Objects) next(ctx context.Context, reconcile func(context.Context, string) (time.Duration, error), failed func(string, error)) bool {
	name, shutdown := s.Queue.Get()
	if shutdown {
		return false
	}
	defer s.Queue.Done(name)
	var again time.Duration
	err := safego.Call("reconcile", func() (err error) {
		again, err = reconcile(ctx, name)
		return err
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !apierrors.IsConflict(err) { // a conflict is expected, and not worth a log line
			failed(name, err)
		}
		s.Queue.AddRateLimited(name)
	default:
		s.Queue.Forget(name)
		if again > 0 {
			s.Queue.AddAfter(name, again)
		}
	}
	return true
}
