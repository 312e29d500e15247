// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"reflect"
	"testing"

	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/process"
)

type creates = rest.Creater //nolint:misspell // upstream's

func is[T any](s rest.Storage) bool {
	_, ok := s.(T)
	return ok
}

// L3: the validation errors of all registries are bounded, or there are few of them.
func TestHostileRegistriesBoundValidationErrors(t *testing.T) {
	if err := process.Prepare(); err != nil {
		t.Fatal(err)
	}
	api, err := builtinAPI()
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]string{
		"bindings":                           "validates few fields",
		"deployments/scale":                  "validates few fields besides metadata",
		"localsubjectaccessreviews":          "checked before",
		"namespaces":                         "checked before",
		"namespaces/finalize":                "checked before",
		"namespaces/status":                  "validates few fields besides metadata",
		"pods/binding":                       "validates few fields",
		"pods/eviction":                      "validates few fields",
		"replicasets/scale":                  "validates few fields besides metadata",
		"replicationcontrollers/scale":       "validates few fields besides metadata",
		"selfsubjectaccessreviews":           "checked before",
		"selfsubjectreviews":                 "validates nothing",
		"selfsubjectrulesreviews":            "validates nothing",
		"serviceaccounts/token":              "validates few fields",
		"services/status":                    "is the space's own",
		"statefulsets/scale":                 "validates few fields besides metadata",
		"subjectaccessreviews":               "checked before",
		"tokenreviews":                       "validates nothing",
		"validatingadmissionpolicies/status": "is the space's own",
	}
	for resource, r := range api.Registries() {
		written := is[rest.Updater](r.Served) || is[creates](r.Served) || is[rest.NamedCreater](r.Served)
		if written && !builtin.IsBounded(r.Served) && others[resource.Resource] == "" {
			t.Errorf("%s: %T", resource, r.Upstream)
		}
	}
}

// What takes a registry's place does all that it does, so that upstream serves it alike.
func TestRegistriesServeAllThatUpstreamsDo(t *testing.T) {
	if err := process.Prepare(); err != nil {
		t.Fatal(err)
	}
	api, err := builtinAPI()
	if err != nil {
		t.Fatal(err)
	}
	interfaces := []reflect.Type{
		reflect.TypeFor[rest.Scoper](), reflect.TypeFor[rest.KindProvider](), reflect.TypeFor[rest.ShortNamesProvider](),
		reflect.TypeFor[rest.CategoriesProvider](), reflect.TypeFor[rest.SingularNameProvider](),
		reflect.TypeFor[rest.GroupVersionKindProvider](), reflect.TypeFor[rest.GroupVersionAcceptor](), reflect.TypeFor[rest.Lister](),
		reflect.TypeFor[rest.Getter](), reflect.TypeFor[rest.GetterWithOptions](), reflect.TypeFor[rest.TableConvertor](),
		reflect.TypeFor[rest.GracefulDeleter](), reflect.TypeFor[rest.MayReturnFullObjectDeleter](), reflect.TypeFor[rest.CollectionDeleter](),
		reflect.TypeFor[creates](), reflect.TypeFor[rest.NamedCreater](), reflect.TypeFor[rest.SubresourceObjectMetaPreserver](),
		reflect.TypeFor[rest.Updater](), reflect.TypeFor[rest.Patcher](), reflect.TypeFor[rest.Watcher](), reflect.TypeFor[rest.Redirector](),
		reflect.TypeFor[rest.Connecter](), reflect.TypeFor[rest.StorageMetadata](), reflect.TypeFor[rest.StorageVersionProvider](),
		reflect.TypeFor[rest.ResetFieldsStrategy](), reflect.TypeFor[rest.CreateUpdateResetFieldsStrategy](),
	}
	if len(api.Registries()) < 100 {
		t.Errorf("there are %d registries", len(api.Registries()))
	}
	for resource, r := range api.Registries() {
		for _, i := range interfaces {
			if i == reflect.TypeFor[rest.Redirector]() && resource.Resource == "services" {
				continue // services/proxy, which is the space's own, asks the space's own
			}
			if reflect.TypeOf(r.Upstream).Implements(i) && !reflect.TypeOf(r.Served).Implements(i) {
				t.Errorf("%s: %T is no %s, unlike %T", resource, r.Served, i, r.Upstream)
			}
		}
	}
}
