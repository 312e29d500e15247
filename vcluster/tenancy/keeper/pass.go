// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// page is how many objects are listed at once.
const page = 500

// present is an object that Berth keeps, or kept.
type present struct {
	key
	uid types.UID
	// copied says that it is a copy of a published object.
	copied bool
}

// keepAll compares all objects. What is left of an earlier state is deleted last.
func (k *Keeper) keepAll(ctx context.Context, rules *access.Rules) (*desired, error) {
	had, err := k.readRecord(ctx)
	if err != nil {
		return nil, err
	}
	d, err := k.desire(rules)
	if err != nil {
		return nil, err
	}
	recorded := slices.Clone(d.resources)
	for _, r := range had {
		if !slices.Contains(recorded, r) {
			recorded = append(recorded, r)
		}
	}
	if rules.Enforces() {
		if err := k.writeRecord(ctx, rules, had, recorded); err != nil {
			return d, err
		}
	}
	var errs failures
	errs.add(k.reclaim(ctx, d))
	all := k.list(ctx, d, recorded)
	if err := ctx.Err(); err != nil {
		return d, err
	}
	for _, err := range d.unknown {
		errs.add(err)
	}
	for _, err := range d.stuck {
		errs.add(err)
	}
	wanted := map[key]bool{}
	for _, t := range d.cluster {
		wanted[t.key("")] = true
		errs.add(k.try(ctx, d, t, ""))
	}
	for _, namespace := range k.namespaces() {
		for _, t := range k.in(rules, d, namespace) {
			wanted[t.key(namespace)] = true
		}
		if err := ctx.Err(); err != nil {
			return d, err
		}
		errs.add(k.keepNamespace(ctx, rules, d, namespace))
	}
	unknown := rules.State().PublishedUnknown
	for _, p := range all {
		if p.copied && unknown {
			continue // it may still be published
		}
		if d.unknown[p.resource.Group] == nil && d.stuck[p.resource] == nil && !wanted[p.key] {
			errs.add(k.remove(ctx, p.key, &p.uid))
		}
	}
	if err := errs.join(); err != nil {
		return d, err
	}
	if !rules.Enforces() {
		return d, k.deleteRecord(ctx)
	}
	if unknown {
		return d, nil
	}
	return d, k.writeRecord(ctx, rules, recorded, d.resources)
}

// try is ensure, unless the object's resource is stuck.
func (k *Keeper) try(ctx context.Context, d *desired, t *template, namespace string) error {
	if d.stuck[t.resource] != nil {
		return nil // the pass has failed, and is repeated
	}
	err := k.ensure(ctx, t, namespace)
	if err != nil && ctx.Err() == nil && (os.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err)) {
		d.stuck[t.resource] = err
	}
	return err
}

// list returns all objects that Berth keeps or kept, and forgets what is known of those that have changed. Resources that it can't
// list are stuck.
func (k *Keeper) list(ctx context.Context, d *desired, recorded []published) []present {
	var all []present
	versions := map[key]string{}
	list := func(resource schema.GroupVersionResource, label string) error {
		options := metav1.ListOptions{LabelSelector: label, Limit: page}
		for {
			list, err := k.metadata.Resource(resource).List(ctx, options)
			if apierrors.IsNotFound(err) {
				return nil // with the kind, its objects are gone
			}
			if err != nil {
				return fmt.Errorf("list %s: %w", resource.Resource, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				if metav1.GetControllerOfNoCopy(o) != nil {
					continue // a controller made it of a template
				}
				about := key{resource, o.Namespace, o.Name}
				versions[about] = o.ResourceVersion
				all = append(all, present{about, o.UID, label == v1alpha1.LabelPublication})
			}
			if options.Continue = list.Continue; options.Continue == "" {
				return nil
			}
		}
	}
	read := func(resource schema.GroupVersionResource, label string) {
		if err := list(resource, label); err != nil {
			d.stuck[resource] = err
		}
	}
	for _, resource := range []schema.GroupVersionResource{bindings, clusterRoles, limitRanges, networkPolicies} {
		read(resource, access.LabelTenant)
	}
	for _, p := range recorded {
		read(p.resource(), v1alpha1.LabelPublication)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for about, was := range k.known {
		if versions[about] != was.version && about.resource != configMaps {
			delete(k.known, about)
		}
	}
	return all
}

// in returns what is kept in a namespace.
func (k *Keeper) in(rules *access.Rules, d *desired, namespace string) []*template {
	var all []*template
	for _, t := range d.namespaced {
		if t.in(namespace) {
			all = append(all, t)
		}
	}
	// They come last, because they only show rights, and may be very many.
	if access.IsTenants(namespace) && rules.Enforces() {
		all = append(all, k.roleBindings(rules)...)
	}
	return firsts(all, namespace)
}

// firsts drops templates of the name of one before, such as of an object that two publications have.
func firsts(all []*template, namespace string) []*template {
	seen := make(map[key]bool, len(all))
	return slices.DeleteFunc(all, func(t *template) bool {
		about := t.key(namespace)
		had := seen[about]
		seen[about] = true
		return had
	})
}

// madeBindings are the templates of the role bindings of each namespace, as they were made of the rules.
type madeBindings struct {
	rules     *access.Rules
	templates []*template
}

func (k *Keeper) roleBindings(rules *access.Rules) []*template {
	// Each pass asks for each namespace; a space may have very many ServiceAccounts.
	if changed := k.promotions.Swap(false); k.made.rules == rules && !changed {
		return k.made.templates
	}
	d := &desired{}
	for _, b := range rules.RoleBindings(k.promoted(rules)) {
		if err := d.add(bindings, "RoleBinding", b, access.IsTenants); err != nil {
			k.config.Logger.Error(err, "Could not make a role binding", "name", b.Name)
		}
	}
	k.made = madeBindings{rules, d.namespaced}
	return d.namespaced
}

// keepNamespace compares the objects of a namespace, and its labels and annotations.
func (k *Keeper) keepNamespace(ctx context.Context, rules *access.Rules, d *desired, name string) error {
	namespace, err := k.config.Informers.Core().V1().Namespaces().Lister().Get(name)
	if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil || d == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	var errs failures
	errs.add(k.keepMetadata(ctx, rules, namespace))
	for _, t := range k.in(rules, d, name) {
		if err := k.try(ctx, d, t, name); err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			errs.add(err)
		}
	}
	return errs.join()
}

func (k *Keeper) keepMetadata(ctx context.Context, rules *access.Rules, namespace *corev1.Namespace) error {
	want := &metav1.ObjectMeta{Name: namespace.Name, Labels: namespace.Labels, Annotations: namespace.Annotations}
	if !rules.KeepMetadata(want) { // it replaces both, and changes neither
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion,
		"labels": difference(namespace.Labels, want.Labels), "annotations": difference(namespace.Annotations, want.Annotations),
	}})
	if err != nil {
		return fmt.Errorf("encode labels of namespace %s: %w", namespace.Name, err)
	}
	if err := k.pace.Wait(ctx); err != nil {
		return err
	}
	_, err = k.objects.Resource(namespaces).Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set labels and annotations of namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// difference returns what a merge patch makes now of was by.
func difference(was, now map[string]string) map[string]any {
	changes := map[string]any{}
	for key := range was {
		if _, ok := now[key]; !ok {
			changes[key] = nil
		}
	}
	for key, value := range now {
		if old, ok := was[key]; !ok || old != value {
			changes[key] = value
		}
	}
	return changes
}
