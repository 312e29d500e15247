// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
)

// measure is the host's metrics server: it knows of every container of a pod on a
// node, and of one more that the host has put into the pod.
type measure struct{}

func (measure) PodMetrics(_ context.Context, pods []*corev1.Pod) (all []metricsv1beta1.PodMetrics, err error) {
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		m := metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Annotations: map[string]string{"node": hostNode}},
			Timestamp:  metav1.NewTime(time.Unix(1_700_000_000, 0)), Window: metav1.Duration{Duration: time.Minute},
		}
		for i := range pod.Spec.Containers {
			m.Containers = append(m.Containers, containerUsage(pod.Spec.Containers[i].Name, int64(100*(i+1))))
		}
		m.Containers = append(m.Containers, containerUsage("host-sidecar", 7))
		all = append(all, m)
	}
	return all, nil
}

func containerUsage(name string, milli int64) metricsv1beta1.ContainerMetrics {
	return metricsv1beta1.ContainerMetrics{Name: name, Usage: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("20Mi"),
	}}
}

// S5, N1: kubectl top pods, and what autoscalers ask: of the tenant's pods, by the
// tenant's names and labels, and nothing else.
func TestUsageIsOfTheTenantsPodsInTheTenantsNames(t *testing.T) {
	env := theEnv(t)
	other := env.space(t, "topother")
	other.run(t, newPod("unseen", "app"))
	s := env.space(t, "top")
	s.run(t, newPod("web", "app", "side"))
	s.run(t, newPod("db", "app"))
	if _, err := s.CoreV1().Pods("default").Create(t.Context(), newPod("pending", "app"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clients, err := metricsclient.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	of := clients.MetricsV1beta1().PodMetricses
	list := func(namespace string, o metav1.ListOptions) (names []string) {
		t.Helper()
		got, err := of(namespace).List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Items {
			names = append(names, m.Namespace+"/"+m.Name)
		}
		slices.Sort(names)
		return names
	}
	for name, tc := range map[string]struct {
		namespace string
		options   metav1.ListOptions
		want      []string
	}{
		"Namespace":      {namespace: "default", want: []string{"default/db", "default/web"}},
		"All":            {want: []string{"default/db", "default/web"}},
		"OtherNamespace": {namespace: "kube-system"},
		"HostNamespace":  {namespace: "berth-topother"},
		"Label":          {namespace: "default", options: metav1.ListOptions{LabelSelector: "app=web"}, want: []string{"default/web"}},
		"HostLabel":      {options: metav1.ListOptions{LabelSelector: "berth.dev/space"}},
		"Field":          {options: metav1.ListOptions{FieldSelector: "metadata.name=db"}, want: []string{"default/db"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, list(tc.namespace, tc.options)); diff != "" {
				t.Errorf("pods -want +got:\n%s", diff)
			}
		})
	}
	one, err := of("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []metricsv1beta1.ContainerMetrics{containerUsage("app", 100), containerUsage("side", 200)}
	if diff := cmp.Diff(want, one.Containers); diff != "" || len(one.Annotations) > 0 || one.Labels["app"] != "web" || len(one.Labels) != 1 || one.Window.Duration != time.Minute {
		t.Errorf("web is %+v; containers -want +got:\n%s", one.ObjectMeta, diff)
	}
	if _, err := of("default").Get(t.Context(), "pending", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), `"default/pending" not found`) {
		t.Errorf("a pod that does not run: %v", err)
	}
	if nodes, err := clients.MetricsV1beta1().NodeMetricses().List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) { // N1, U6
		t.Errorf("nodes are %v, %v", nodes, err)
	}
	resources, err := s.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
	if err != nil || len(resources.APIResources) != 1 || resources.APIResources[0].Name != "pods" {
		t.Errorf("discovery of the API is %v, %v", resources, err)
	}
	groups, err := s.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "metrics.k8s.io" }) {
		t.Errorf("discovery does not tell of the API: %v", groups)
	}
	resp, body := s.ask(t, http.MethodGet, "/apis/metrics.k8s.io/v1beta1/pods", http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}})
	if resp.StatusCode != http.StatusOK || tells(s, body+fmt.Sprint(resp.Header)) {
		t.Errorf("table is %d: %s", resp.StatusCode, body)
	}
}
