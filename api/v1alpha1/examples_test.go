// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
)

// X6, D2, T1: `kubectl apply` takes each example without a warning, and each limit and sync option in it means something.
func TestExamplesAreValid(t *testing.T) {
	c := client.WithFieldValidation(hostClient(t), metav1.FieldValidationStrict)
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range files {
		for i, content := range documents(t, file) {
			t.Run(fmt.Sprintf("%s %d", filepath.Base(file), i), func(t *testing.T) { checkExample(t, c, content) })
		}
	}
}

func checkExample(t *testing.T, c client.Client, content string) {
	t.Helper()
	object, typed := example(t, content)
	// As kubectl sends it, so that the API server finds fields that the definition does not have.
	if err := c.Create(t.Context(), object.DeepCopy(), client.DryRunAll); err != nil {
		t.Error(err)
	}
	if err := unstructured.SetNestedField(object.Object, true, "spec", "unknown"); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), object, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "spec.unknown") {
		t.Errorf("a field that the definition does not have: %v", err)
	}
	space, ok := typed.(*v1alpha1.Space)
	if !ok {
		return
	}
	for name := range space.Spec.Limits {
		if quantity, ok := bounds.ByName(name); !ok || quantity.Bound().Scope != bounds.PerSpace {
			t.Errorf("%s is no limit of a space", name)
		}
	}
	var options []string
	for _, option := range space.Spec.Sync {
		options = append(options, option.Resource+"="+option.Value)
	}
	if _, err := resources.Parse(options); err != nil {
		t.Error(err)
	}
}

// D2: the complete examples have every field of the specs. Types of Kubernetes' own have more fields than an example needs.
func TestTheFullExamplesSetEveryField(t *testing.T) {
	files, err := filepath.Glob("../../examples/*-full.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range files {
		_, object := example(t, documents(t, file)[0])
		for _, path := range unset(reflect.ValueOf(object).Elem().FieldByName("Spec"), "spec") {
			if !ofKubernetes(path) {
				t.Errorf("%s lacks %s", file, path)
			}
		}
	}
}

// ofKubernetes reports whether a path leads into a type of Kubernetes' own.
func ofKubernetes(path string) bool {
	for _, list := range []string{"limitRange[].", "limitRanges[].", "networkPolicies[].", "matchOwners[].", "subjects[].", "tenants.", "selector"} {
		if strings.Contains(path, list) {
			return true
		}
	}
	return false
}

// D2: the reference page has a section for every field of the API.
func TestTheReferenceHasEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]any{
		"Space": v1alpha1.Space{}, "Tenant": v1alpha1.Tenant{}, "TenantOwner": v1alpha1.TenantOwner{}, "BerthConfiguration": v1alpha1.BerthConfiguration{},
		"Publication": v1alpha1.Publication{}, "CRDShare": v1alpha1.CRDShare{}, "ResourceSync": v1alpha1.ResourceSync{},
	} {
		var paths []string
		for _, part := range []string{"Spec", "Status"} {
			if value := reflect.ValueOf(object).FieldByName(part); value.IsValid() {
				paths = append(paths, unset(value, strings.ToLower(part))...)
			}
		}
		if len(paths) < 4 {
			t.Fatalf("a %s has the fields %q only", kind, paths)
		}
		for _, path := range paths {
			if !ofKubernetes(path) && !strings.Contains(string(page), "\n#### "+kind+" `"+path+"`\n") {
				t.Errorf("docs/reference/api.md lacks %s of %s; run make generate", path, kind)
			}
		}
	}
}

// documents returns the objects of a file.
func documents(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(content), "\n---\n")
}

// example returns an object as it is written and as its type.
func example(t *testing.T, content string) (*unstructured.Unstructured, runtime.Object) {
	t.Helper()
	object, scheme := &unstructured.Unstructured{}, runtime.NewScheme()
	if err := errors.Join(yaml.Unmarshal([]byte(content), &object.Object), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.New(object.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(content), typed); err != nil {
		t.Fatal(err)
	}
	return object, typed
}

// unset returns the paths of the fields of a struct that have no value, and of the structs in it and in its lists.
func unset(v reflect.Value, path string) (paths []string) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue // within a time
		}
		value, at := v.Field(i), path+"."+name
		if value.IsZero() {
			paths = append(paths, at)
		}
		switch value.Kind() {
		case reflect.Struct:
			paths = append(paths, unset(value, at)...)
		case reflect.Slice:
			if element := value.Type().Elem(); element.Kind() == reflect.Struct {
				missing := unset(reflect.Zero(element), at+"[]")
				for j := range value.Len() { // not all fields go together
					in := unset(value.Index(j), at+"[]")
					missing = slices.DeleteFunc(missing, func(path string) bool { return !slices.Contains(in, path) })
				}
				paths = append(paths, missing...)
			}
		}
	}
	return paths
}
