// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bench/internal/sight"
)

const (
	// setFields is how many fields of each part of the specification an object has.
	setFields = 3
	// donePhase is what [Finish] writes to the status.
	donePhase = "Done"
)

// New returns an object as tenants create it.
func New(crd *apiextensionsv1.CustomResourceDefinition, name string) *unstructured.Unstructured {
	spec := map[string]any{}
	for part := range Parts {
		values := map[string]any{}
		for field := range setFields {
			values[fmt.Sprint("field", field)] = "value"
		}
		spec[fmt.Sprint("part", part)] = values
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: Group, Version: version, Kind: crd.Spec.Names.Kind})
	o.SetName(name)
	return o
}

// Path returns the path of the objects of a namespace.
func Path(crd *apiextensionsv1.CustomResourceDefinition, namespace string) string {
	return path.Join("/apis", Group, version, "namespaces", namespace, crd.Spec.Names.Plural)
}

// Create creates an object at the path of its namespace.
func Create(ctx context.Context, client kubernetes.Interface, in string, o *unstructured.Unstructured) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return client.CoreV1().RESTClient().Post().AbsPath(in).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}

// Finish writes the status of an object, as a controller does that is done with it.
func Finish(ctx context.Context, client kubernetes.Interface, in, name string) error {
	status := []byte(`{"status":{"phase":"` + donePhase + `"}}`)
	return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(in, name, "status").Body(status).Do(ctx).Error()
}

// Connect connects clients before the time runs.
func Connect(ctx context.Context, clients []kubernetes.Interface, in string) error {
	for _, client := range clients {
		if err := client.CoreV1().RESTClient().Get().AbsPath(in).Param("limit", "1").Do(ctx).Error(); err != nil {
			return fmt.Errorf("connect a client to %s: %w", in, err)
		}
	}
	return nil
}

// Watch watches the objects of a namespace from now on. One that is finished counts as running.
func Watch(ctx context.Context, config *rest.Config, crd *apiextensionsv1.CustomResourceDefinition, namespace string) (*sight.Sight, error) {
	client, err := dynamic.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	objects := client.Resource(schema.GroupVersionResource{Group: Group, Version: version, Resource: crd.Spec.Names.Plural}).Namespace(namespace)
	now, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	return sight.New(ctx, now.GetResourceVersion(), objects.Watch, func(object metav1.Object) bool {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		phase, _, err := unstructured.NestedString(o.Object, "status", "phase")
		return err == nil && phase == donePhase
	})
}
