// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/vcluster"
)

// soon is well under upstream's minute for requests in flight.
const soon = 20 * time.Second

func TestStopEndsWatches(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "watches"))
	remote, err := clientset(t, admin(t, p)).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	local, err := clientset(t, p.Loopback()).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stopSoon(t, p)
	for range remote.ResultChan() { // ends when the stream does
	}
	for range local.ResultChan() {
	}
}

// A request whose body never comes must not hold up a stop.
func TestStopDoesNotWaitForSlowClients(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "slow"))
	c := admin(t, p)
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	body, feed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Host+"/api/v1/namespaces/default/configmaps", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if _, err := io.WriteString(feed, `{"metadata":`); err != nil { // read, so it is being handled
		t.Fatal(err)
	}
	stopSoon(t, p)
	cancel()
	<-ended
}

func TestStopMayBeCalledAgain(t *testing.T) {
	p := start(t, config(t, "twice"))
	stop(t, p)
	stop(t, p)
	select {
	case <-p.Done():
	default:
		t.Error("it has not ended")
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	if _, err := clientset(t, p.Loopback()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("it still answers")
	}
}

func TestTheKubernetesServiceHasTheChosenAddress(t *testing.T) {
	c := config(t, "address")
	c.ServiceCIDR, c.KubernetesServiceIP = "10.77.0.0/24", net.IPv4(10, 77, 0, 9)
	p := start(t, c)
	var service *corev1.Service
	eventually(t, func() (err error) {
		service, err = clientset(t, p.Loopback()).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err
	})
	if service.Spec.ClusterIP != "10.77.0.9" {
		t.Errorf("its address is %s", service.Spec.ClusterIP)
	}
}

func stopSoon(t *testing.T, p *vcluster.ControlPlane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// Nor must one that asks and does not read.
func TestStopDoesNotWaitForClientsThatDoNotRead(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "deaf"))
	c := admin(t, p)
	c.NextProtos = []string{"http/1.1"}
	client := clientset(t, p.Loopback())
	deaf, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+"/api/v1/configmaps?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := deaf.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for range 40 { // more than the buffers of a connection hold
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "big-"}, Data: map[string]string{"x": strings.Repeat("x", 900_000)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	stopSoon(t, p)
}
