// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// crd returns the name of the definition of an extension.
func crd(r resources.Resource) string { return r.GVR().GroupResource().String() }

// extend reads the host's definitions of the enabled extensions.
func (h *Host) extend(ctx context.Context) error {
	for _, r := range resources.Table() {
		if !r.Extension || !h.Sync.On(r.Name) {
			continue
		}
		version := r.GVK().Version
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := h.Reader.Get(ctx, client.ObjectKey{Name: crd(r)}, definition); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("sync of %s: the host has no CustomResourceDefinition %s; install it, or disable the resource", r.Name, crd(r))
			}
			return fmt.Errorf("read the host's definition of %s: %w", r.Name, err)
		}
		if h.Definitions[r.Name] = spaceDefinition(definition, version); len(h.Definitions[r.Name].Spec.Versions) == 0 {
			return fmt.Errorf("sync of %s: the host's CustomResourceDefinition %s does not serve version %s; install one that does, or disable the resource", r.Name, crd(r), version)
		}
	}
	return nil
}

// spaceDefinition returns a space's version of the host's definition: only the version that is synced, if the host
// serves it, so that no conversion is necessary.
func spaceDefinition(host *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: host.Name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: host.Spec.Group, Names: host.Spec.Names, Scope: host.Spec.Scope,
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		},
	}
	if approved, ok := host.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		out.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approved}
	}
	for _, v := range host.Spec.Versions {
		if v.Name == version && v.Served {
			v.Storage, out.Spec.Versions = true, append(out.Spec.Versions, v)
		}
	}
	return out
}
