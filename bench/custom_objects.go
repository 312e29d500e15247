// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/translate"
)

const (
	// customFields is how many fields of each part of the specification an object has.
	customFields = 3
	// donePhase is what the controller writes to the status.
	donePhase = "Done"
)

// newCustomDefinition returns a definition whose objects have a status.
func newCustomDefinition() *apiextensionsv1.CustomResourceDefinition {
	crd := newDefinition(0)
	version := &crd.Spec.Versions[0]
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	version.Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}},
	}
	return crd
}

// newCustom returns an object as tenants create it.
func newCustom(crd *apiextensionsv1.CustomResourceDefinition, name string) *unstructured.Unstructured {
	spec := map[string]any{}
	for part := range definitionParts {
		fields := map[string]any{}
		for field := range customFields {
			fields[fmt.Sprint("field", field)] = "value"
		}
		spec[fmt.Sprint("part", part)] = fields
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: definitionGroup, Version: "v1", Kind: crd.Spec.Names.Kind})
	o.SetName(name)
	return o
}

// customPath returns the path of the objects of a namespace.
func customPath(crd *apiextensionsv1.CustomResourceDefinition, namespace string) string {
	return path.Join("/apis", definitionGroup, "v1", "namespaces", namespace, crd.Spec.Names.Plural)
}

// createCustom creates an object at the path of its namespace.
func createCustom(ctx context.Context, client kubernetes.Interface, in string, o *unstructured.Unstructured) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return client.CoreV1().RESTClient().Post().AbsPath(in).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}

// finishCustom writes the status of an object, as a controller does that is done with it.
func finishCustom(ctx context.Context, client kubernetes.Interface, in, name string) error {
	status := []byte(`{"status":{"phase":"` + donePhase + `"}}`)
	return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(in, name, "status").Body(status).Do(ctx).Error()
}

// connectAll connects clients before the time runs.
func connectAll(ctx context.Context, clients []kubernetes.Interface, in string) error {
	for _, client := range clients {
		if err := client.CoreV1().RESTClient().Get().AbsPath(in).Param("limit", "1").Do(ctx).Error(); err != nil {
			return fmt.Errorf("connect a client to %s: %w", in, err)
		}
	}
	return nil
}

// watchCustom watches the objects of a namespace. One with a status runs.
func (p *plane) watchCustom(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, namespace string) (*sight, error) {
	client, err := dynamic.NewForConfig(rest.CopyConfig(p.config))
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", p.name, err)
	}
	objects := client.Resource(schema.GroupVersionResource{Group: definitionGroup, Version: "v1", Resource: crd.Spec.Names.Plural}).Namespace(namespace)
	now, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list objects of %s: %w", p.name, err)
	}
	s, err := newSight(ctx, now.GetResourceVersion(), objects.Watch, func(object metav1.Object) bool {
		o, ok := object.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		phase, _, err := unstructured.NestedString(o.Object, "status", "phase")
		return err == nil && phase == donePhase
	})
	if err != nil {
		return nil, fmt.Errorf("watch objects of %s: %w", p.name, err)
	}
	return s, nil
}

// remove deletes all objects of a way, and waits until those of names are gone on both sides.
func (w *customWay) remove(ctx context.Context, user kubernetes.Interface, in string, names, onHost []string) error {
	if err := user.CoreV1().RESTClient().Delete().AbsPath(in).Do(ctx).Error(); err != nil {
		return fmt.Errorf("remove the objects from %s: %w", w.tenant.plane.name, err)
	}
	return errors.Join(w.controller.own.await(ctx, w.controller.own.gone, onHost...), w.tenant.own.await(ctx, w.tenant.own.gone, names...))
}

// createDefinition creates a definition, and waits until it is served.
func (p *plane) createDefinition(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	client, err := apiextensions.NewForConfig(rest.CopyConfig(p.config))
	if err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a definition in %s: %w", p.name, err)
	}
	return p.awaitServed(ctx, client, crd)
}

// syncCustom shares a definition of the host with all tenants, syncs its objects, and waits until it does so for a space.
func (p *plane) syncCustom(ctx context.Context, space *plane, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := p.createDefinition(ctx, crd); err != nil {
		return err
	}
	known := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	host, err := client.New(rest.CopyConfig(p.config), client.Options{Scheme: known})
	if err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	all := []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}}
	sync := &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Tenants: all, MaxObjects: mostCustom, Status: []string{"status.phase"},
	}}
	for part := range definitionParts {
		sync.Spec.Fields = append(sync.Spec.Fields, v1alpha1.SyncedField{Path: fmt.Sprint("spec.part", part)})
	}
	share := &v1alpha1.CRDShare{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.CRDShareSpec{Mode: v1alpha1.ForcedCRD, Tenants: all}}
	for _, o := range []client.Object{share, sync} {
		if err := host.Create(ctx, o); err != nil {
			return fmt.Errorf("sync %s: %w", crd.Name, err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		err := host.Get(ctx, client.ObjectKeyFromObject(sync), sync)
		return meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReady), err
	})
	if err != nil {
		return fmt.Errorf("wait until %s is synced: %w: %v", crd.Name, err, sync.Status.Conditions)
	}
	return p.awaitCustom(ctx, space, crd)
}

// awaitCustom waits until an object of a space is on the host, and deletes it. Requests fail while the space's API server starts again, which
// it does to begin with the sync.
func (p *plane) awaitCustom(ctx context.Context, space *plane, crd *apiextensionsv1.CustomResourceDefinition) error {
	client, disconnect, err := space.client()
	if err != nil {
		return err
	}
	defer disconnect()
	onHost, disconnectHost, err := p.client()
	if err != nil {
		return err
	}
	defer disconnectHost()
	const name = "first"
	in, inHost := customPath(crd, metav1.NamespaceDefault), customPath(crd, translate.Space{Name: space.name}.HostNamespace())
	synced := func(want int, ask func(ctx context.Context) error) error {
		var last error
		err := wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
			var on unstructured.UnstructuredList
			if last = ask(ctx); last != nil {
				return false, nil
			}
			var body []byte
			if body, last = onHost.CoreV1().RESTClient().Get().AbsPath(inHost).DoRaw(ctx); last == nil {
				last = on.UnmarshalJSON(body)
			}
			return last == nil && len(on.Items) == want, nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s has %d objects of %s: %w", p.name, want, space.name, errors.Join(err, last))
		}
		return nil
	}
	err = synced(1, func(ctx context.Context) error {
		err := createCustom(ctx, client, in, newCustom(crd, name))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	return errors.Join(err, synced(0, func(ctx context.Context) error {
		err := client.CoreV1().RESTClient().Delete().AbsPath(in, name).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}))
}
