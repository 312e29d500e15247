// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/berth-dev/berth/bounds"
)

// L3: five Services of 100 ports that select all of 49,000 pods have the controller of Endpoints hold 7 GiB, and that of EndpointSlices
// works for 16 s for each 5,000 pods and Service, whenever one of the pods is written.
func TestHostileServicesSelectNoMorePodsThanControllersCanHold(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "targets")
	c.HiddenNodes = true
	c.Controllers = []string{names.ServiceAccountController, names.EndpointsController, names.EndpointSliceController}
	c.Account = bounds.NewAccount(bounds.Limits{bounds.ServiceTargets: 20})
	client := clientset(t, admin(t, gateway.start(t, c)))
	eventually(t, func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	for i := range 3 {
		pods := client.CoreV1().Pods("default")
		spec := template("web").Spec
		spec.NodeName = "hidden"
		pod, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": "web"}}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.1.2.%d", i+1)}}
		pod.Status.PodIP = pod.Status.PodIPs[0].IP
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string, ports int) {
		t.Helper()
		v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
		for i := range ports {
			v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1000 + i)})
		}
		if _, err := client.CoreV1().Services("default").Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("first", 4)
	eventually(t, func() error { return addressed(t, client, "first", 3) })
	create("second", 3) // 9 of 8 that are left
	eventually(t, func() error { return refusedTargets(t, client, "second") })
	create("alone", 7) // 21 of 20
	eventually(t, func() error { return refusedTargets(t, client, "alone") })
	for _, name := range []string{"second", "alone"} {
		if _, err := client.CoreV1().Endpoints("default").Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("endpoints of %s: %v", name, err)
		}
	}
	if used := c.Account.Used(bounds.ServiceTargets); used != 12 {
		t.Errorf("%d targets are in use", used)
	}
	create("small", 2)
	eventually(t, func() error { return addressed(t, client, "small", 3) })
	if err := client.CoreV1().Services("default").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return addressed(t, client, "second", 3) })
}

// addressed returns an error until a Service has endpoints, of both kinds.
func addressed(t *testing.T, client kubernetes.Interface, service string, want int) error {
	t.Helper()
	e, err := client.CoreV1().Endpoints("default").Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, s := range e.Subsets {
		if len(s.NotReadyAddresses) != want {
			return fmt.Errorf("%d addresses", len(s.NotReadyAddresses))
		}
	}
	list, err := client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || len(list.Items[0].Endpoints) != want || len(e.Subsets) != 1 {
		return fmt.Errorf("%d slices, %d subsets", len(list.Items), len(e.Subsets))
	}
	return nil
}

// refusedTargets returns an error until a Service has an event that names the limit.
func refusedTargets(t *testing.T, client kubernetes.Interface, service string) error {
	t.Helper()
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + service})
	if err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Reason == "FailedToListPods" && strings.Contains(e.Message, "limit service-targets") {
			return nil
		}
	}
	return errors.New("no event")
}
