// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster"
)

// A tenant is admin of its space, and may lock itself out; then an admin must be
// able to come and repair, and other spaces must not notice.
func TestAWebhookThatRefusesEverythingDoesNotKeepASpaceFromStarting(t *testing.T) {
	c := config(t, "bricked")
	p := start(t, c)
	client := clientset(t, p.Loopback())
	if err := client.RbacV1().ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	services, err := aggregator.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	hook := refuseAll("https://127.0.0.1:1/")
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return refused(t, p, "brick") })
	if err := services.ApiregistrationV1().APIServices().Delete(t.Context(), "v1.apps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	stop(t, p)

	p = start(t, c)
	client = clientset(t, p.Loopback())
	if err := refused(t, p, "brick"); err != nil {
		t.Error(err)
	}
	if _, err := client.RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), hook.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "repaired"}}, metav1.CreateOptions{})
		return err
	})
}

// Whoever writes an object that names an address has this process connect to
// it: nowhere, unless Config.Dial goes there.
func TestNothingIsReachedButThroughDial(t *testing.T) {
	closed := &recorder{}
	c := config(t, "reach")
	c.Dial = closed.dial
	p := start(t, c)
	client := clientset(t, p.Loopback())
	for _, url := range []string{"https://127.0.0.1:1/", "https://169.254.169.254/latest", "https://host.example/"} {
		hook := refuseAll(url)
		if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return refused(t, p, errClosed.Error()) })
		if err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), hook.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "open-"}}, metav1.CreateOptions{})
			return err
		})
	}

	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "metadata.example", Ports: []corev1.ServicePort{{Port: 443}},
		},
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := closed.calls.Load()
	services, err := aggregator.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	_, err = services.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.outside.example"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "outside.example", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "outside", Port: ptr.To[int32](443)},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if closed.calls.Load() == before {
			return errors.New("the API service was not tried by Dial")
		}
		return nil
	})

	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Spec:       corev1.PodSpec{NodeName: "outside", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	eventually(t, func() error {
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		return err
	})
	pod.ResourceVersion = "" // whatever others write meanwhile
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "192.0.2.8", PodIPs: []corev1.PodIP{{IP: "192.0.2.8"}}}
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/api/v1/namespaces/default/pods/outside/proxy/",
		"/api/v1/namespaces/default/services/https:outside:443/proxy/",
		"/api/v1/nodes/outside/proxy/",
		"/api/v1/namespaces/default/pods/outside/log",
	} {
		before := closed.calls.Load()
		err := client.RESTClient().Get().AbsPath(path).Do(t.Context()).Error()
		if err == nil {
			t.Errorf("%s is answered", path)
		}
		if closed.calls.Load() == before && !apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "no endpoints") {
			t.Errorf("%s was not tried by Dial: %v", path, err)
		}
	}
}

// The conversion webhook of a CRD is a way out, too.
func TestConversionWebhooksGoThroughDial(t *testing.T) {
	closed := &recorder{}
	c := config(t, "convert")
	c.Dial = closed.dial
	p := start(t, c)
	crds, err := apiextensions.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	crd := boats()
	second := crd.Spec.Versions[0]
	second.Name, second.Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions, second)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	if _, err := crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rest := clientset(t, p.Loopback()).RESTClient()
	eventually(t, func() error {
		boat := []byte(`{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"generateName":"b-"}}`)
		return rest.Post().AbsPath("/apis/example.com/v1/namespaces/default/boats").Body(boat).SetHeader("Content-Type", "application/json").Do(t.Context()).Error()
	})
	if err := rest.Get().AbsPath("/apis/example.com/v2/boats").Do(t.Context()).Error(); err == nil || !strings.Contains(err.Error(), errClosed.Error()) {
		t.Errorf("read in the other version: %v", err)
	}
	if closed.calls.Load() == 0 {
		t.Error("nothing was tried by Dial")
	}
}

var errClosed = errors.New("closed by the test")

type recorder struct{ calls atomic.Int64 }

func (r *recorder) dial(_ context.Context, _, address string) (net.Conn, error) {
	r.calls.Add(1)
	return nil, fmt.Errorf("%s: %w", address, errClosed)
}

// refused returns nil if a write is refused with a message that holds why.
func refused(t *testing.T, p *vcluster.ControlPlane, why string) error {
	t.Helper()
	_, err := clientset(t, p.Loopback()).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("it was refused with: %w", err)
	}
	return nil
}

// refuseAll is a webhook that must be asked about everything.
func refuseAll(url string) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "brick"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "brick.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &url},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			FailurePolicy:           ptr.To(admissionv1.Fail),
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}},
		}},
	}
}
