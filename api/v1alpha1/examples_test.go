// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
)

// X6, D2: `kubectl apply` takes each example without a warning, and each limit and sync option in it means something.
func TestExamplesAreValidSpaces(t *testing.T) {
	c := client.WithFieldValidation(hostClient(t), metav1.FieldValidationStrict)
	files, err := filepath.Glob("../../examples/space*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			object, space := example(t, file)
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
		})
	}
}

// D2: the complete example has every field of the spec.
func TestTheFullExampleSetsEveryField(t *testing.T) {
	_, space := example(t, "../../examples/space-full.yaml")
	for _, path := range unset(reflect.ValueOf(space.Spec), "spec") {
		if !strings.HasPrefix(path, "spec.limitRange[].") { // a type of Kubernetes' with more than an example needs
			t.Errorf("examples/space-full.yaml lacks %s", path)
		}
	}
}

// D2: the reference page has a section for every field of a Space.
func TestTheReferenceHasEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := unset(reflect.ValueOf(v1alpha1.Space{}).FieldByName("Spec"), "spec")
	paths = append(paths, unset(reflect.ValueOf(v1alpha1.Space{}).FieldByName("Status"), "status")...)
	if len(paths) < 40 {
		t.Fatalf("a Space has the fields %q only", paths)
	}
	for _, path := range paths {
		if !strings.Contains(string(page), "\n#### `"+path+"`\n") {
			t.Errorf("docs/reference/api.md lacks %s; run make generate", path)
		}
	}
}

func example(t *testing.T, file string) (*unstructured.Unstructured, *v1alpha1.Space) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	object, space := &unstructured.Unstructured{}, &v1alpha1.Space{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, space); err != nil {
		t.Fatal(err)
	}
	return object, space
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
				first := reflect.Zero(element)
				if value.Len() > 0 {
					first = value.Index(0)
				}
				paths = append(paths, unset(first, at+"[]")...)
			}
		}
	}
	return paths
}
