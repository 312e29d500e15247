// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// manager is the field manager of what the keeper writes.
const manager = "berth"

var errDeleting = errors.New("it is being deleted")

func (k *Keeper) client(about key) dynamic.ResourceInterface {
	if about.namespace == "" {
		return k.objects.Resource(about.resource)
	}
	return k.objects.Resource(about.resource).Namespace(about.namespace)
}

// ensure makes an object what it should be, whoever made it, unless it is known to be so.
func (k *Keeper) ensure(ctx context.Context, t *template, namespace string) error {
	about, limit := t.key(namespace), maxKept
	if about.resource == bindings {
		limit = maxKeptForBinding
	}
	k.mu.Lock()
	was, known := k.known[about]
	full := len(k.known) >= limit
	k.mu.Unlock()
	switch {
	case known && was.sum == t.sum:
		return nil
	case full && !known:
		return fmt.Errorf("keep %s %s: Berth already keeps %d objects in the space; give the tenant fewer owners or a lower quota of namespaces", t.resource.Resource, objectName(about), limit)
	}
	written, err := k.write(ctx, t, about)
	if err != nil {
		return fmt.Errorf("keep %s %s: %w", t.resource.Resource, objectName(about), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[about] = verified{t.sum, written.GetResourceVersion()}
	return nil
}

func objectName(about key) string {
	if about.namespace == "" {
		return about.name
	}
	return about.namespace + "/" + about.name
}

func (k *Keeper) write(ctx context.Context, t *template, about key) (*unstructured.Unstructured, error) {
	if about.resource == namespaces {
		return k.writeNamespace(ctx, t)
	}
	client := k.client(about)
	current, err := client.Get(ctx, about.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return k.create(ctx, t, about)
	}
	if err != nil {
		return nil, err
	}
	update := t.object.DeepCopy()
	update.SetNamespace(about.namespace)
	update.SetResourceVersion(current.GetResourceVersion())
	update.SetUID(current.GetUID())
	update.SetFinalizers(slices.DeleteFunc(current.GetFinalizers(), func(f string) bool { return !slices.Contains(upstreamFinalizers(), f) }))
	if about.resource == definitions && isOwn(current) {
		setAnnotation(update, annotationAdopted, "true")
	}
	if err := k.pace.Wait(ctx); err != nil {
		return nil, err
	}
	updated, err := client.Update(ctx, update, metav1.UpdateOptions{FieldManager: manager})
	switch {
	case err == nil && updated.GetDeletionTimestamp() != nil:
		return nil, errDeleting
	case apierrors.IsInvalid(err) && isReplaceable(about.resource):
		// Some fields can't be changed, such as the role of a binding, or the data of an immutable ConfigMap.
		if err := k.checkNew(ctx, t, about); err != nil {
			return nil, err
		}
		if err := k.remove(ctx, about, ptr.To(current.GetUID())); err != nil {
			return nil, err
		}
		return k.create(ctx, t, about)
	}
	return updated, err
}

// checkNew returns why an object can't be created even if there is none of its name. What there is then stays.
func (k *Keeper) checkNew(ctx context.Context, t *template, about key) error {
	object := t.object.DeepCopy()
	object.SetNamespace(about.namespace)
	_, err := k.client(about).Create(ctx, object, metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsAlreadyExists(err) { // that is found last
		return nil
	}
	return err
}

func (k *Keeper) create(ctx context.Context, t *template, about key) (*unstructured.Unstructured, error) {
	if err := k.pace.Wait(ctx); err != nil {
		return nil, err
	}
	object := t.object.DeepCopy()
	object.SetNamespace(about.namespace)
	return k.client(about).Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
}

// writeNamespace merges a published namespace into what there is: its finalizers, and labels of others, stay.
func (k *Keeper) writeNamespace(ctx context.Context, t *template) (*unstructured.Unstructured, error) {
	about := t.key("")
	if err := k.pace.Wait(ctx); err != nil {
		return nil, err
	}
	current, err := k.client(about).Get(ctx, about.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return k.create(ctx, t, about)
	}
	if err != nil {
		return nil, err
	}
	want := t.object.DeepCopy()
	if isOwn(current) {
		setAnnotation(want, annotationAdopted, "true")
	}
	set := map[string]any{"labels": want.GetLabels(), "resourceVersion": current.GetResourceVersion()}
	if annotations := want.GetAnnotations(); len(annotations) > 0 { // null would remove all
		set["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": set})
	if err != nil {
		return nil, err
	}
	return k.client(about).Patch(ctx, about.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
}

// annotationAdopted is on a namespace or definition that the tenant had before it was published. It stays
// when it is no longer published, because all that the tenant has in it would go with it.
const annotationAdopted = "berth.dev/adopted"

// isOwn reports whether an object is the tenant's: it is no copy, or has been adopted.
func isOwn(current *unstructured.Unstructured) bool {
	_, copied := current.GetLabels()[v1alpha1.LabelPublication]
	return !copied || current.GetAnnotations()[annotationAdopted] != ""
}

func setAnnotation(u *unstructured.Unstructured, name, value string) {
	all := u.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	u.SetAnnotations(all)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// release leaves an object to the tenant that was the tenant's before it was published. It reports whether it was.
func (k *Keeper) release(ctx context.Context, about key) (was bool, err error) {
	if about.resource != namespaces && about.resource != definitions {
		return false, nil
	}
	current, err := k.client(about).Get(ctx, about.name, metav1.GetOptions{})
	if err != nil || current.GetAnnotations()[annotationAdopted] == "" {
		return false, ignoreNotFound(err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`, v1alpha1.LabelPublication, annotationAdopted)
	_, err = k.client(about).Patch(ctx, about.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return true, err
}

// upstreamFinalizers are those that upstream sets, and removes when they are due.
func upstreamFinalizers() []string {
	return []string{
		"customresourcecleanup.apiextensions.k8s.io", "kubernetes.io/pv-protection", "kubernetes.io/pvc-protection", "kubernetes.io/vac-protection",
		"service.kubernetes.io/load-balancer-cleanup", "networking.k8s.io/service-cidr-finalizer",
	}
}

// isReplaceable reports whether an object of a resource may be deleted so that another takes its place: nothing else is lost with it.
func isReplaceable(resource schema.GroupVersionResource) bool {
	switch resource.GroupResource() {
	case definitions.GroupResource(), schema.GroupResource{Resource: "persistentvolumes"}, schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return false
	}
	return true
}

// remove deletes an object of a UID, whatever finalizers it has.
func (k *Keeper) remove(ctx context.Context, about key, uid *types.UID) error {
	if err := k.pace.Wait(ctx); err != nil {
		return err
	}
	k.forget(func(o key) bool { return o == about })
	if released, err := k.release(ctx, about); released || err != nil {
		return err
	}
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if uid != nil {
		options.Preconditions = &metav1.Preconditions{UID: uid}
	}
	err := k.client(about).Delete(ctx, about.name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another has its name
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", about.resource.Resource, objectName(about), err)
	}
	return k.unblock(ctx, about)
}

// unblock removes the finalizers that keep a deleted object.
func (k *Keeper) unblock(ctx context.Context, about key) error {
	left, err := k.client(about).Get(ctx, about.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", about.resource.Resource, objectName(about), err)
	}
	finalizers := left.GetFinalizers()
	kept := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return !slices.Contains(upstreamFinalizers(), f) })
	if left.GetDeletionTimestamp() == nil || len(kept) == len(finalizers) {
		return nil
	}
	left.SetFinalizers(kept)
	_, err = k.client(about).Update(ctx, left, metav1.UpdateOptions{FieldManager: manager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove finalizers of %s %s: %w", about.resource.Resource, objectName(about), err)
	}
	return nil
}
