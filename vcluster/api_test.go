// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// The space's own controllers work on its objects without any node (S8).
func TestADeploymentMakesPods(t *testing.T) {
	p := start(t, config(t, "deploy"))
	client := clientset(t, p.Loopback())
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := func() []corev1.Pod {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	eventually(t, func() error {
		if n := len(pods()); n != 3 {
			return fmt.Errorf("%d pods, want 3", n)
		}
		return nil
	})
	for _, pod := range pods() {
		if pod.Spec.ServiceAccountName != "default" || pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "" {
			t.Errorf("pod %s: account %q, phase %s, node %q", pod.Name, pod.Spec.ServiceAccountName, pod.Status.Phase, pod.Spec.NodeName)
		}
	}
	// The garbage collector takes what the deployment leaves. Pods that no
	// kubelet runs go at once.
	if err := client.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := len(pods()); n != 0 {
			return fmt.Errorf("%d pods are left", n)
		}
		return nil
	})
}

func TestADeletedNamespaceGoesAway(t *testing.T) {
	p := start(t, config(t, "namespaces"))
	client := clientset(t, p.Loopback())
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ServiceAccounts("gone").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
		},
	}
	// It bears a finalizer that only a controller takes away.
	if _, err := client.CoreV1().PersistentVolumeClaims("gone").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		ns, err := client.CoreV1().Namespaces().Get(t.Context(), "gone", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %v, %w", ns.Status.Conditions, err)
	})
}

// C1
func TestATenantInstallsItsOwnCRDs(t *testing.T) {
	p := start(t, config(t, "crds"))
	crds, err := apiextensions.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), boats(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	client := d.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "boats"}).Namespace("default")
	boat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Boat",
		"metadata": map[string]any{"name": "one"},
		"spec":     map[string]any{"length": int64(12)},
	}}
	eventually(t, func() error {
		_, err := client.Create(t.Context(), boat, metav1.CreateOptions{})
		return err
	})
	boat.SetName("two")
	if err := unstructured.SetNestedField(boat.Object, "long", "spec", "length"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), boat, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("create one that the schema forbids: %v", err)
	}
	patch := []byte(`{"spec":{"length":13}}`)
	if _, err := client.Patch(t.Context(), "one", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d boats, want 1", len(list.Items))
	}
	if n, _, _ := unstructured.NestedInt64(list.Items[0].Object, "spec", "length"); n != 13 {
		t.Errorf("length is %d, want 13", n)
	}
	// Their schema is served, too.
	eventually(t, func() error {
		doc, err := clientset(t, p.Loopback()).RESTClient().Get().AbsPath("/openapi/v3/apis/example.com/v1").Do(t.Context()).Raw()
		if err == nil && !strings.Contains(string(doc), "com.example.v1.Boat") {
			err = fmt.Errorf("no schema of boats in %d bytes", len(doc))
		}
		return err
	})
	if err := crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "boats.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := crds.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "boats.example.com", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %w", err)
	})
}

func TestServerSideApplyKeepsFieldOwnersApart(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "apply"))
	client := clientset(t, admin(t, p)).AppsV1().Deployments("default")
	apply := func(manager string, force bool, change func(*appsv1apply.DeploymentSpecApplyConfiguration)) error {
		spec := appsv1apply.DeploymentSpec()
		change(spec)
		_, err := client.Apply(t.Context(), appsv1apply.Deployment("web", "default").WithSpec(spec),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	create := func(s *appsv1apply.DeploymentSpecApplyConfiguration) {
		s.WithReplicas(1).
			WithSelector(metav1apply.LabelSelector().WithMatchLabels(map[string]string{"app": "web"})).
			WithTemplate(corev1apply.PodTemplateSpec().
				WithLabels(map[string]string{"app": "web"}).
				WithSpec(corev1apply.PodSpec().WithContainers(corev1apply.Container().WithName("web").WithImage("nginx"))))
	}
	if err := apply("one", false, create); err != nil {
		t.Fatal(err)
	}
	scale := func(s *appsv1apply.DeploymentSpecApplyConfiguration) { s.WithReplicas(2) }
	if err := apply("two", false, scale); !apierrors.IsConflict(err) {
		t.Errorf("another manager's field taken without force: %v", err)
	}
	if err := apply("two", true, scale); err != nil {
		t.Error(err)
	}
}

// kubectl explain and kubectl apply read the schema, through a path prefix, too.
func TestOpenAPIIsServedUnderThePathPrefix(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "schema"))
	client := clientset(t, admin(t, p))
	paths, err := client.Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{
		"api/v1":                                "io.k8s.api.core.v1.Pod",
		"apis/apps/v1":                          "io.k8s.api.apps.v1.Deployment",
		"apis/apiextensions.k8s.io/v1":          "CustomResourceDefinition",
		"apis/apiregistration.k8s.io/v1":        "APIService",
		"apis/rbac.authorization.k8s.io/v1":     "io.k8s.api.rbac.v1.Role",
		"apis/admissionregistration.k8s.io/v1":  "ValidatingAdmissionPolicy",
		"apis/gateway.example.com/v1alpha1/not": "",
	} {
		gv, ok := paths[path]
		if ok != (kind != "") {
			t.Errorf("%s is served: %v", path, ok)
		}
		if !ok {
			continue
		}
		doc, err := gv.Schema("application/json")
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !strings.Contains(string(doc), kind) {
			t.Errorf("%s: no %s in %d bytes", path, kind, len(doc))
		}
	}
	// Older kubectl versions read version 2.
	if doc, err := client.Discovery().OpenAPISchema(); err != nil {
		t.Error(err)
	} else if n := len(doc.GetDefinitions().GetAdditionalProperties()); n < 500 {
		t.Errorf("OpenAPI v2 has %d definitions", n)
	}
}

func TestTheVersionIsTheReleaseThatIsBuiltIn(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, config(t, "version"))
	v, err := clientset(t, p.Loopback()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "k8s.io/kubernetes "+v.GitVersion+"\n") {
		t.Errorf("version is %s, which is not go.mod's", v.GitVersion)
	}
}

// apiPriorities must not lack a group version that upstream serves.
func TestEveryGroupVersionIsDiscovered(t *testing.T) {
	p := start(t, config(t, "discovery"))
	raw, err := clientset(t, p.Loopback()).RESTClient().Get().AbsPath("/").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Paths []string }
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	_, lists, err := clientset(t, p.Loopback()).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	discovered := map[string]bool{}
	for _, l := range lists {
		discovered["/apis/"+l.GroupVersion] = true
	}
	var served int
	for _, path := range index.Paths {
		if strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") == 3 {
			served++
			if !discovered[path] {
				t.Errorf("%s is served but not discovered", path)
			}
		}
	}
	if served < 20 {
		t.Errorf("%d group versions are served, want upstream's", served)
	}
}

func boats() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "boats.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Singular: "boat", Kind: "Boat", ListKind: "BoatList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"length": {Type: "integer"}}},
					},
				}},
			}},
		},
	}
}
