// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// Sharing must not show: each schema is what upstream makes of it. Twice, for
// what builds it must not change it.
func TestSharedSchemasAreUpstreams(t *testing.T) {
	var c genericapiserver.Config
	Describe(&c)
	upstream := func(names *apiopenapi.DefinitionNamer) (*common.Config, *common.OpenAPIV3Config) {
		get := generatedopenapi.GetOpenAPIDefinitions
		return genericapiserver.DefaultOpenAPIConfig(get, names), genericapiserver.DefaultOpenAPIV3Config(get, names)
	}
	v2, v3 := upstream(namer())
	served := []string{"io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator."}
	var names []string
	for name := range generatedopenapi.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} }) {
		// Others are of component configuration, and refer to what is not there.
		if slices.ContainsFunc(served, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) < 800 {
		t.Fatalf("%d names, want upstream's", len(names))
	}
	for _, round := range []string{"first", "second"} {
		wantV2, err := builder.BuildOpenAPIDefinitionsForResources(v2, names...)
		if err != nil {
			t.Fatal(err)
		}
		gotV2, err := builder.BuildOpenAPIDefinitionsForResources(c.OpenAPIConfig, names...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asJSON(t, wantV2.Definitions), asJSON(t, gotV2.Definitions)); diff != "" {
			t.Errorf("%s: version 2 (-upstream +shared):\n%s", round, diff)
		}
		wantV3, err := builder3.BuildOpenAPIDefinitionsForResources(v3, names...)
		if err != nil {
			t.Fatal(err)
		}
		gotV3, err := builder3.BuildOpenAPIDefinitionsForResources(c.OpenAPIV3Config, names...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asJSON(t, wantV3), asJSON(t, gotV3)); diff != "" {
			t.Errorf("%s: version 3 (-upstream +shared):\n%s", round, diff)
		}
	}
}

func asJSON(t *testing.T, v any) (m map[string]any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
