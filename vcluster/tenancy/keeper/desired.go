// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// key names an object.
type key struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

var (
	bindings        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	clusterRoles    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	limitRanges     = schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}
	networkPolicies = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitions     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// template is an object that is kept in namespaces, or in none.
type template struct {
	resource   schema.GroupVersionResource
	namespaced bool
	object     *unstructured.Unstructured // without a namespace
	sum        string
	in         func(namespace string) bool
}

func (t *template) key(namespace string) key { return key{t.resource, namespace, t.object.GetName()} }

// desired are the objects that a state keeps.
type desired struct {
	cluster, namespaced []*template
	// resources are those of published objects.
	resources []published
	// unknown are the groups with kinds that the space does not serve, or not now.
	unknown map[string]error
	// stuck are the resources that could not be listed, or not written in time: a tenant's server or webhook answers for them. They
	// are left alone until the next pass, so that they hold up nothing else.
	stuck map[schema.GroupVersionResource]error
}

// published is a resource of which there are copies.
type published struct {
	Group, Version, Resource string
}

func (p published) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: p.Group, Version: p.Version, Resource: p.Resource}
}

// desire returns the objects that the rules keep. Role bindings are not among them; they change with promotions.
func (k *Keeper) desire(rules *access.Rules) (*desired, error) {
	d := &desired{unknown: map[string]error{}, stuck: map[schema.GroupVersionResource]error{}}
	if !rules.Enforces() {
		return d, nil
	}
	if err := d.add(clusterRoles, "ClusterRole", rules.NamespaceDeleter(), nil); err != nil {
		return nil, err
	}
	for _, l := range rules.LimitRanges() {
		if err := d.add(limitRanges, "LimitRange", l, everywhere); err != nil {
			return nil, err
		}
	}
	for _, p := range rules.NetworkPolicies() {
		if err := d.add(networkPolicies, "NetworkPolicy", p, everywhere); err != nil {
			return nil, err
		}
	}
	served := map[string]*metav1.APIResourceList{}
	for i := range rules.State().Published {
		if err := k.desirePublished(d, served, &rules.State().Published[i]); err != nil {
			return nil, err
		}
	}
	d.cluster = firsts(d.cluster, "")
	first := func(t *template) int {
		return slices.Index([]schema.GroupVersionResource{definitions, namespaces}, t.resource)
	}
	slices.SortStableFunc(d.cluster, func(a, b *template) int { return first(b) - first(a) }) // others depend on them
	return d, nil
}

// everywhere is for policies: owners may run pods in the namespaces that each space begins with, too.
func everywhere(string) bool { return true }

// add adds an object of Berth's own.
func (d *desired) add(resource schema.GroupVersionResource, kind string, object runtime.Object, in func(string) bool) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("convert %s: %w", kind, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	return d.addTemplate(&template{resource: resource, namespaced: in != nil, object: clean(u), in: in})
}

func (d *desired) addTemplate(t *template) error {
	text, err := json.Marshal(t.object.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", t.object.GetName(), err)
	}
	sum := sha256.Sum256(text)
	t.sum = hex.EncodeToString(sum[:])
	if t.namespaced {
		d.namespaced = append(d.namespaced, t)
	} else {
		d.cluster = append(d.cluster, t)
	}
	return nil
}

func (k *Keeper) desirePublished(d *desired, served map[string]*metav1.APIResourceList, p *access.Published) error {
	gvk := p.Object.GroupVersionKind()
	version := gvk.GroupVersion().String()
	if served[version] == nil {
		list, err := k.discovery.ServerResourcesForGroupVersion(version)
		if err != nil && !apierrors.IsNotFound(err) { // of this group alone: a server of the tenant may be asked for it
			d.unknown[gvk.Group] = fmt.Errorf("discover resources of %s: %w", version, err)
		}
		if list == nil {
			list = &metav1.APIResourceList{}
		}
		served[version] = list
	}
	i := slices.IndexFunc(served[version].APIResources, func(r metav1.APIResource) bool {
		return r.Kind == gvk.Kind && slices.Contains(r.Verbs, "create") && !slices.Contains([]byte(r.Name), '/')
	})
	if i < 0 && d.unknown[gvk.Group] == nil {
		d.unknown[gvk.Group] = fmt.Errorf("publish %s %s: the space does not serve %s", gvk.Kind, p.Object.GetName(), version)
	}
	if i < 0 {
		return nil
	}
	resource := served[version].APIResources[i]
	t := &template{resource: gvk.GroupVersion().WithResource(resource.Name), namespaced: resource.Namespaced, object: clean(p.Object.DeepCopy())}
	from := p.Object.GetNamespace()
	t.in = func(namespace string) bool { return namespace == from }
	if p.Namespaces == v1alpha1.EveryNamespace {
		t.in = func(namespace string) bool {
			return namespace == metav1.NamespaceDefault || access.IsTenants(namespace)
		}
	}
	set := t.object.GetLabels()
	if set == nil {
		set = map[string]string{}
	}
	delete(set, access.LabelTenant)
	delete(set, access.LabelRoleBinding)
	set[v1alpha1.LabelPublication] = p.Publication
	t.object.SetLabels(set)
	if t.resource.GroupResource() == clusterRoles.GroupResource() {
		// The rules are those of the host, and not what the space's own roles would add up to.
		unstructured.RemoveNestedField(t.object.Object, "aggregationRule")
	}
	about := published{t.resource.Group, t.resource.Version, t.resource.Resource}
	if !slices.Contains(d.resources, about) {
		d.resources = append(d.resources, about)
	}
	return d.addTemplate(t)
}

// clean removes what only a server sets.
func clean(u *unstructured.Unstructured) *unstructured.Unstructured {
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "ownerReferences", "finalizers", "selfLink", "namespace"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	return u
}
