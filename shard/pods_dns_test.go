// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// S6: from the moment a pod runs it has its space's names, and nobody else's.
// They come from the host alone: the space may sleep, and sleeps on.
func TestPodsResolveTheirSpacesNamesAlsoWhileItSleeps(t *testing.T) {
	in := startInside(t)
	a := virtual(t, startSpace(t, in.Shard, "dns-a"))
	b := virtual(t, startSpace(t, in.Shard, "dns-b"))
	in.runs(t, a, "dns-a", "caller", "127.0.1.1")
	in.runs(t, b, "dns-b", "caller", "127.0.1.2")
	in.runs(t, a, "dns-a", "db-0", "", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db" })
	service := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
		change(&s.Spec)
		s, err := a.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	web := service("web", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })
	service("db", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.Selector = corev1.ClusterIPNone, map[string]string{"app": "db-0"}
	})
	var address string
	testhost.Eventually(t, "db-0 has an address", func(ctx context.Context) error {
		pod, err := a.CoreV1().Pods("default").Get(ctx, "db-0", metav1.GetOptions{})
		if err != nil || pod.Status.PodIP == "" {
			return fmt.Errorf("none yet: %w", err)
		}
		address = pod.Status.PodIP
		return nil
	})
	testhost.Eventually(t, "the watch shows the API's service", func(context.Context) error {
		if in.address("dns-a") == "" {
			return errors.New("not yet")
		}
		return nil
	})
	names := func(t *testing.T) {
		t.Helper()
		for name, want := range map[string]string{
			"web.default.svc.cluster.local":                                      web.Spec.ClusterIP,
			"db.default.svc.cluster.local":                                       address,
			"db-0.db.default.svc.cluster.local":                                  address,
			"kubernetes.default.svc.cluster.local":                               in.address("dns-a"),
			strings.ReplaceAll(address, ".", "-") + ".default.pod.cluster.local": address,
			"nothing.default.svc.cluster.local":                                  "NXDOMAIN",
		} {
			testhost.Eventually(t, name, func(context.Context) error {
				if got := in.says(t, "127.0.1.1", name); got != want {
					return fmt.Errorf("it is %s, want %s", got, want)
				}
				return nil
			})
		}
		for _, name := range []string{"web.default.svc.cluster.local", "db-0.db.default.svc.cluster.local"} {
			if got := in.says(t, "127.0.1.2", name); got != "NXDOMAIN" {
				t.Errorf("another space's pod is told that %s is %s", name, got)
			}
		}
		if got := in.says(t, "127.0.1.3", "web.default.svc.cluster.local"); got != "REFUSED" {
			t.Errorf("a stranger is told that it is %s", got)
		}
	}
	names(t)
	in.falls(t, "dns-a")
	names(t)
	in.is(t, "dns-a", shard.ReasonAsleep, metav1.ConditionTrue)

	t.Run("the nameserver of its pods leads here", func(t *testing.T) {
		host := testhost.Clientset(t, theHost(t).Config())
		of := translate.Space{Name: "dns-a"}
		resolver, err := host.CoreV1().Services(of.HostNamespace()).Get(t.Context(), translate.DNSServiceName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod, err := host.CoreV1().Pods(of.HostNamespace()).Get(t.Context(), of.HostName("default", "caller", translate.LimitSubdomain), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.DNSPolicy != corev1.DNSNone || !slices.Equal(pod.Spec.DNSConfig.Nameservers, []string{resolver.Spec.ClusterIP}) {
			t.Errorf("the pod asks %+v, want %s", pod.Spec.DNSConfig, resolver.Spec.ClusterIP)
		}
		for service, want := range map[string]string{
			translate.DNSServiceName: "[7453 7453]", of.HostName("default", "kubernetes", translate.LimitLabel): "[7444]",
		} {
			found, err := host.DiscoveryV1().EndpointSlices(of.HostNamespace()).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
			if err != nil || len(found.Items) != 1 {
				t.Fatalf("service %s has %d slices: %v", service, len(found.Items), err)
			}
			var ports []int32
			for _, p := range found.Items[0].Ports {
				ports = append(ports, *p.Port)
			}
			if addresses := found.Items[0].Endpoints[0].Addresses; addresses[0] != "192.0.2.10" || fmt.Sprint(ports) != want {
				t.Errorf("service %s leads to %v, ports %v", service, addresses, ports)
			}
		}
	})

	t.Run("the address of a pod that has ended is nobody's", func(t *testing.T) {
		of := translate.Space{Name: "dns-b"}
		pods := testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods(of.HostNamespace())
		testhost.Eventually(t, "the pod ends", func(ctx context.Context) error {
			pod, err := pods.Get(ctx, of.HostName("default", "caller", translate.LimitSubdomain), metav1.GetOptions{})
			if err != nil {
				return err
			}
			pod.Status.Phase = corev1.PodFailed // and keeps its address in its status
			_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		})
		testhost.Eventually(t, "the address is refused", func(context.Context) error {
			if got := in.says(t, "127.0.1.2", "kubernetes.default.svc.cluster.local"); got != "REFUSED" {
				return errors.New(got)
			}
			return nil
		})
	})
}
