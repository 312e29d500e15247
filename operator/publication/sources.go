// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// problem is why a part of a publication has no effect. Reason is that of the condition.
type problem struct {
	reason, message string
}

// invalid returns the problem of a spec that can't mean anything.
func invalid(format string, args ...any) *problem {
	return &problem{reason: v1alpha1.ReasonInvalidSpec, message: fmt.Sprintf(format, args...)}
}

// find returns what a source selects. Index is that of the source in the spec.
func find(mapper meta.RESTMapper, index int, source *v1alpha1.PublicationSource) (selection, *problem) {
	at := fmt.Sprintf("spec.sources[%d]", index)
	version, err := schema.ParseGroupVersion(source.APIVersion)
	if err != nil || version.Version == "" {
		return selection{}, invalid("%s.apiVersion: %q is no group and version, such as networking.k8s.io/v1", at, source.APIVersion)
	}
	kind := version.WithKind(source.Kind)
	if reason := refuseKind(kind.GroupKind()); reason != "" {
		return selection{}, invalid("%s: objects of kind %s can't be published: %s", at, kind.GroupKind(), reason)
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return selection{}, &problem{reason: v1alpha1.ReasonUnknownKind, message: fmt.Sprintf(
			"%s: the host has no kind %s in %s; correct the source, or install its definition", at, source.Kind, source.APIVersion)}
	case err != nil:
		return selection{}, &problem{reason: v1alpha1.ReasonSourceUnavailable, message: fmt.Sprintf("%s: find kind %s: %v", at, kind, err)}
	}
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	if namespaced && source.Namespace == "" {
		return selection{}, invalid("%s.namespace: objects of kind %s are in namespaces; set the one to read them from", at, source.Kind)
	}
	if !namespaced && source.Namespace != "" {
		return selection{}, invalid("%s.namespace: objects of kind %s are in no namespace; remove the field", at, source.Kind)
	}
	found := selection{resource: mapping.Resource, kind: kind, namespace: source.Namespace}
	if source.Name != "" {
		found.fieldSel = nameSelector(source.Name)
		return found, nil
	}
	selector, err := selectorOf(source)
	if err != nil {
		return selection{}, invalid("%s.selector: %v", at, err)
	}
	found.labels = selector.String()
	return found, nil
}

func selectorOf(source *v1alpha1.PublicationSource) (labels.Selector, error) {
	if source.Selector == nil {
		return labels.SelectorFromSet(labels.Set{v1alpha1.LabelPublish: "true"}), nil
	}
	return metav1.LabelSelectorAsSelector(source.Selector)
}

// unavailable returns the problem of a source that can't be read.
func unavailable(index int, selected selection, err error) *problem {
	at, resource := fmt.Sprintf("spec.sources[%d]", index), selected.resource.GroupResource()
	switch {
	case errors.Is(err, errTooMuch):
		return &problem{reason: v1alpha1.ReasonTooManyObjects, message: fmt.Sprintf("%s: %v", at, err)}
	case apierrors.IsForbidden(err):
		where := ""
		if selected.namespace != "" {
			where = " in namespace " + selected.namespace
		}
		return &problem{reason: v1alpha1.ReasonSourceForbidden, message: fmt.Sprintf(
			"%s: the operator may not read %s%s; create a ClusterRole with the label %s=true that allows get, list, and watch of resource %s in API group %q",
			at, resource, where, v1alpha1.LabelAggregateToPublisher, resource.Resource, resource.Group)}
	case apierrors.IsNotFound(err):
		return &problem{reason: v1alpha1.ReasonUnknownKind, message: fmt.Sprintf(
			"%s: the host has no kind %s in %s any more; correct the source, or install its definition", at, selected.kind.Kind, selected.kind.GroupVersion())}
	case apierrors.IsMethodNotSupported(err):
		return invalid("%s: objects of kind %s can't be listed and watched, so they can't be published", at, selected.kind.Kind)
	case err == nil:
		return &problem{reason: v1alpha1.ReasonSourceUnavailable, message: fmt.Sprintf("%s: %s are being read", at, resource)}
	default:
		return &problem{reason: v1alpha1.ReasonSourceUnavailable, message: fmt.Sprintf("%s: read %s: %v", at, resource, err)}
	}
}

// gone reports whether there can be no objects of a source, so that their copies are deleted. Any other problem keeps them:
// a policy must not end because a request failed.
func (p *problem) gone() bool { return p != nil && p.reason == v1alpha1.ReasonUnknownKind }

// worst returns the problem that the reason of the condition is taken from.
func worst(problems []problem) problem {
	order := []string{v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonSourceForbidden, v1alpha1.ReasonUnknownKind, v1alpha1.ReasonSourceUnavailable}
	return slices.MinFunc(problems, func(a, b problem) int { return rank(order, a.reason) - rank(order, b.reason) })
}

func rank(order []string, reason string) int {
	if i := slices.Index(order, reason); i >= 0 {
		return i
	}
	return len(order)
}
