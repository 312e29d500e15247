// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	berthac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/publication"
	"github.com/berth-dev/berth/sharing"
)

const (
	// manager is the field manager of PublishedObjects.
	manager = "berth-operator"
	// page is how many SharedObjects are read at once. A process that was taken over can write large ones.
	page = 16
)

// reconciler publishes what a space shares.
type reconciler struct {
	client client.Client // reads from the cache, which has only the metadata of SharedObjects
	live   client.Reader
	events events.EventRecorder
	clock  clock.PassiveClock
	pace   *pace
}

// Reconcile implements [reconcile.Reconciler]. The request names a Space.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	start := r.clock.Now()
	exists, err := r.reconcile(ctx, request)
	if err == nil && !exists {
		r.pace.forget(request.Name)
	} else {
		r.pace.record(request.Name, r.clock.Since(start))
	}
	return reconcile.Result{}, err
}

func (r *reconciler) reconcile(ctx context.Context, request reconcile.Request) (exists bool, _ error) {
	have := &v1alpha1.PublishedObjectList{}
	if err := r.client.List(ctx, have, client.MatchingFields{sharedBy: request.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return true, fmt.Errorf("list what space %s shares: %w", request.Name, err)
	}
	space := &v1alpha1.Space{}
	err := r.client.Get(ctx, request.NamespacedName, space)
	if client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("read Space %s: %w", request.Name, err)
	}
	choice := newChoice(sharing.SpaceOf(space))
	if err == nil && space.DeletionTimestamp.IsZero() && space.Spec.TenantName != "" {
		if err := r.choose(ctx, choice); err != nil {
			return true, err
		}
	}
	if err := r.write(ctx, space, choice, have.Items); err != nil {
		return true, err
	}
	r.report(space, choice)
	return err == nil, nil
}

// choose chooses what is published: nothing as long as no space receives it, because all platforms keep it in memory.
func (r *reconciler) choose(ctx context.Context, choice *choice) error {
	below := &v1alpha1.SpaceList{}
	err := r.client.List(ctx, below, client.MatchingFields{publication.SpaceAbove: choice.space.Tenant}, client.Limit(1), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list spaces below tenant %s: %w", choice.space.Tenant, err)
	}
	if len(below.Items) == 0 {
		return nil
	}
	return r.read(ctx, choice)
}

// read chooses from the SharedObjects in the space's namespace. It stops after so many bytes that the rest couldn't be published.
func (r *reconciler) read(ctx context.Context, choice *choice) error {
	namespace := client.InNamespace(sharing.Namespace(choice.space.Name))
	known := metadataList()
	if err := r.client.List(ctx, known, namespace, client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list shared objects of space %s: %w", choice.space.Name, err)
	}
	if len(known.Items) == 0 {
		return nil // as most spaces
	}
	list := &v1alpha1.SharedObjectList{}
	for {
		if err := r.live.List(ctx, list, namespace, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("read shared objects of space %s: %w", choice.space.Name, err)
		}
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp.IsZero() {
				choice.add(&list.Items[i])
			}
		}
		if list.Continue == "" {
			return nil
		}
		if choice.full() {
			choice.leaveOut(fmt.Sprintf("the objects after %s are not read: a space may share at most %d MiB", list.Items[len(list.Items)-1].Name, sharing.MaxBytes>>20))
			return nil
		}
	}
}

func metadataList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SharedObjectList"))
	return list
}

// write makes the PublishedObjects of a space those that were chosen. One that the host rejects keeps no other from being written, and
// none from being deleted.
func (r *reconciler) write(ctx context.Context, space *v1alpha1.Space, choice *choice, have []v1alpha1.PublishedObject) error {
	existing, wanted := map[string]*v1alpha1.PublishedObject{}, map[string]bool{}
	for i := range have {
		existing[have[i].Name] = &have[i]
	}
	for _, object := range choice.objects {
		wanted[object.name] = true
	}
	var errs []error
	for name, object := range existing {
		if wanted[name] {
			continue
		}
		err := r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete PublishedObject %s: %w", name, err))
		}
	}
	for _, object := range choice.objects {
		if matches(existing[object.name], space, object) {
			continue
		}
		config := berthac.PublishedObject(object.name).
			WithLabels(map[string]string{v1alpha1.LabelPublication: object.publication, v1alpha1.LabelSharedBy: space.Name}).
			WithSpec(berthac.PublishedObjectSpec().WithObject(runtime.RawExtension{Raw: object.content}).WithNamespaces(v1alpha1.SameNamespace)).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("Space").WithName(space.Name).WithUID(space.UID))
		if err := r.client.Apply(ctx, config, client.FieldOwner(manager), client.ForceOwnership); err != nil {
			errs = append(errs, fmt.Errorf("write PublishedObject %s: %w", object.name, err))
		}
	}
	return errors.Join(errs...)
}

func matches(have *v1alpha1.PublishedObject, space *v1alpha1.Space, object chosen) bool {
	return have != nil && have.Labels[v1alpha1.LabelPublication] == object.publication && have.Spec.Namespaces == v1alpha1.SameNamespace && len(have.Spec.Fields) == 0 &&
		len(have.OwnerReferences) == 1 && have.OwnerReferences[0].UID == space.UID && publication.SameJSON(have.Spec.Object.Raw, object.content)
}

// report says in an event about the Space what is left out. What its owners can see of that is said in the space, when they set
// the label.
func (r *reconciler) report(space *v1alpha1.Space, choice *choice) {
	if choice.leftOut == 0 {
		return
	}
	text := strings.Join(choice.reasons, "; ")
	if more := choice.leftOut - len(choice.reasons); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	const limit = 1000 // of the note of an event
	r.events.Eventf(space, nil, corev1.EventTypeWarning, v1alpha1.ReasonSharesLeftOut, "Share", "%s", cut(text, limit))
}
