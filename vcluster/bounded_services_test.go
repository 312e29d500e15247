// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bounds"
)

// S4, L3: the ports of the Services that are in the store count after a restart, too.
func TestHostilePortsOfServicesCountAfterARestart(t *testing.T) {
	endpoint := newTestGateway(t)
	c := endpoint.config(t, "ports")
	c.Controllers = nil
	create := func(name string, ports int) error {
		t.Helper()
		c.Account = bounds.NewAccount(bounds.Limits{bounds.ServicePortsTotal: 60})
		p := endpoint.start(t, c)
		defer stop(t, p)
		v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for i := range ports {
			v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1000 + i)})
		}
		_, err := clientset(t, admin(t, p)).CoreV1().Services("default").Create(t.Context(), v, metav1.CreateOptions{})
		return err
	}
	if err := create("first", 40); err != nil {
		t.Fatal(err)
	}
	if err := create("second", 40); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit service-ports-total is reached: 40 ports asked, 4") {
		t.Errorf("got %v", err)
	}
	if err := create("third", 10); err != nil {
		t.Error(err)
	}
}

// L3: 49,000 Services without ports were compared with each pod that was written.
func TestHostileServicesWithoutPortsCount(t *testing.T) {
	_, _, config := bounded(t, bounds.Limits{bounds.ServicePortsTotal: 3})
	services := clientset(t, config).CoreV1().Services("default")
	headless := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	}
	eventually(t, func() error {
		_, err := services.Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err
	})
	for i := range 2 {
		if _, err := services.Create(t.Context(), headless(fmt.Sprintf("s%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := services.Update(t.Context(), headless("updated"), metav1.UpdateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit service-ports-total") {
		t.Errorf("got %v", err)
	}
	if err := services.Delete(t.Context(), "s0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Create(t.Context(), headless("last"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
