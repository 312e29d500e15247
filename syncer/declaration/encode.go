// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"encoding/json"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// source is what a declaration was compiled from, without what doesn't matter for it.
type source struct {
	Sync       v1alpha1.ResourceSync                    `json:"sync"`
	Definition apiextensionsv1.CustomResourceDefinition `json:"definition"`
}

func sourceOf(sync *v1alpha1.ResourceSync, crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) (json.RawMessage, error) {
	from := &source{
		Sync: v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: sync.Name, UID: sync.UID}, Spec: sync.Spec},
		Definition: apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crd.Spec.Group, Scope: crd.Spec.Scope, Names: crd.Spec.Names, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{*version},
		}},
	}
	from.Sync.Spec.Tenants = nil
	data, err := json.Marshal(from)
	if err != nil {
		return nil, fmt.Errorf("encode a ResourceSync with its definition: %w", err)
	}
	return data, nil
}

// Encode returns declarations for another process, which reads them with [Decode]. The result is the same for the same declarations.
func Encode(all []*Declaration) ([]byte, error) {
	sources := make([]json.RawMessage, len(all))
	for i, d := range all {
		sources[i] = d.source
	}
	data, err := json.Marshal(sources)
	if err != nil {
		return nil, fmt.Errorf("encode what is synced of a space: %w", err)
	}
	return data, nil
}

// Decode returns the declarations that [Encode] encoded, but for their Watch.
func Decode(data []byte) ([]*Declaration, error) {
	var sources []source
	if err := json.Unmarshal(data, &sources); err != nil {
		return nil, fmt.Errorf("read what is synced of a space: %w", err)
	}
	all := make([]*Declaration, len(sources))
	for i := range sources {
		d, errs := Compile(&sources[i].Sync, &sources[i].Definition)
		if len(errs) > 0 {
			return nil, fmt.Errorf("read what is synced of a space, %s: %w", sources[i].Sync.Name, errs.ToAggregate())
		}
		all[i] = d
	}
	return all, nil
}

// VersionOf identifies declarations that are ordered by name, and the watches that they came with. That of none is empty.
func VersionOf(all []*Declaration) string {
	parts := make([]string, len(all))
	for i, d := range all {
		parts[i] = fmt.Sprintf("%s@%s.%d", d.Name, d.Version, d.Watch)
	}
	return strings.Join(parts, ",")
}

// SameAs reports whether two declarations differ in nothing but their Watch.
func (d *Declaration) SameAs(other *Declaration) bool {
	return d.Name == other.Name && d.Version == other.Version && d.owner.UID == other.owner.UID
}
