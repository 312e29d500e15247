// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/metadata"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// changesOnlyStatus reports whether an update leaves an object as it is, as clients make who write what they have read, or changes
// only the status of a custom resource: operators in the space report there what they did.
func changesOnlyStatus(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update {
		return false
	}
	object, old := unversioned(a.GetObject()), unversioned(a.GetOldObject())
	if object == nil || old == nil {
		return false
	}
	if a.GetSubresource() == "status" {
		now, ok := object.(*unstructured.Unstructured)
		was, wasOK := old.(*unstructured.Unstructured)
		if ok && wasOK {
			delete(now.Object, "status")
			delete(was.Object, "status")
		}
	}
	return equality.Semantic.DeepEqual(object, old)
}

// unversioned returns a copy of an object without what changes with each update.
func unversioned(o runtime.Object) runtime.Object {
	if o == nil {
		return nil
	}
	c := o.DeepCopyObject()
	m := metadataOf(c)
	if m == nil {
		return nil
	}
	m.SetManagedFields(nil)
	m.SetResourceVersion("")
	m.SetGeneration(0)
	return c
}

// checkParent refuses to change a published object by a subresource whose object is another.
func (p *Plugin) checkParent(ctx context.Context, a admission.Attributes) error {
	if len(p.source.Get().Published) == 0 {
		return nil
	}
	var resource metadata.ResourceInterface = p.objects.Resource(a.GetResource())
	if a.GetNamespace() != "" {
		resource = p.objects.Resource(a.GetResource()).Namespace(a.GetNamespace())
	}
	parent, err := resource.Get(context.WithoutCancel(ctx), a.GetName(), metav1.GetOptions{})
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("read the object: %w", err))
	}
	if err := keptBy(parent, a.GetResource().GroupResource()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// checkAPIService refuses to hand over an API to a server of the tenant: one of the space itself, by which Berth keeps objects, or that
// of a definition that is published, or that the platform forces on the space.
func (p *Plugin) checkAPIService(_ context.Context, a admission.Attributes) error {
	service, ok := a.GetObject().(*apiregistration.APIService)
	if !ok || service.Spec.Service == nil || a.GetOperation() == admission.Delete {
		return nil
	}
	if legacyscheme.Scheme.IsGroupRegistered(service.Spec.Group) || slices.Contains([]string{"apiextensions.k8s.io", "apiregistration.k8s.io", v1alpha1.GroupVersion.Group}, service.Spec.Group) {
		return fmt.Errorf("spec.service: the space itself serves %q; remove this field", service.Spec.Group)
	}
	if p.shared != nil {
		set, _ := p.shared.Watch()
		if forced := set.Forced(service.Spec.Group); len(forced) > 0 {
			return fmt.Errorf("spec.service: the platform forces the definition %s on the space, so the space itself serves %s; remove this APIService", forced[0], service.Spec.Group)
		}
	}
	for _, published := range p.source.Get().Published {
		if published.Object.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
			continue
		}
		if group, _, _ := unstructured.NestedString(published.Object.Object, "spec", "group"); group == service.Spec.Group {
			return fmt.Errorf("spec.service: the administrator of the platform publishes resources of %s; remove this APIService", group)
		}
	}
	return nil
}
