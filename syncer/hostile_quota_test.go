// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/engine"
)

// countCreates is a rule that counts how often the host is asked to create an object of a resource.
func countCreates(resource string, n *atomic.Int64) rule {
	return func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodPost && strings.HasSuffix(c.URL.Path, "/"+resource) {
			n.Add(1)
		}
		return send()
	}
}

// hostPods waits until the space has so many pods on the host.
func (env *testEnv) hostPods(t *testing.T, want int) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("see %d pods on the host", want), func(ctx context.Context) error {
		all, err := env.host.CoreV1().Pods(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(all.Items) != want {
			return fmt.Errorf("there are %d", len(all.Items))
		}
		return nil
	})
}

// refusedPods waits until so many pods of the space say that the host's quota refuses them.
func (env *testEnv) refusedPods(t *testing.T, want int) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("see %d pods that the quota refuses", want), func(ctx context.Context) error {
		all, err := env.virtual.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for _, pod := range all.Items {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason == engine.ReasonQuota {
					n++
				}
			}
		}
		if n < want {
			return fmt.Errorf("%d of %d say so", n, len(all.Items))
		}
		return nil
	})
}

func plainPods(name string, replicas int32) *corev1.PodTemplateSpec {
	d := newDeployment(name, replicas)
	d.Spec.Template.Spec.Containers[0].EnvFrom, d.Spec.Template.Spec.Containers[0].VolumeMounts, d.Spec.Template.Spec.Volumes = nil, nil, nil
	return &d.Spec.Template
}

// L3, S8: pods beyond the host's quota wait together. One of them asks the host now and then; when a unit becomes
// free, one of them gets it at once, and the others do not ask.
func TestHostilePodsOverQuotaAskTheHostRarely(t *testing.T) {
	t.Parallel()
	const replicas, quota = 2000, 5
	env := newEnv(t, "over-quota")
	env.quota(t, corev1.ResourcePods, fmt.Sprint(quota))
	var asked atomic.Int64
	env.begin(countCreates("pods", &asked))
	d := newDeployment("flood", replicas)
	d.Spec.Template = *plainPods("flood", replicas)
	must(t, env.virtual.AppsV1().Deployments("default").Create, d)
	env.hostPods(t, quota)
	for _, n := range []int{replicas / 4, replicas / 2, replicas - quota} { // each within the timeout of tests: a busy machine takes its time
		env.refusedPods(t, n)
	}
	if n := asked.Load(); n > 200 {
		t.Errorf("the host was asked %d times to create %d pods of which it takes %d", n, replicas, quota)
	}
	t.Logf("asked %d times for %d pods", asked.Load(), replicas)
	before := asked.Load()
	env.quota(t, corev1.ResourcePods, fmt.Sprint(quota+1))
	env.hostPods(t, quota+1)
	env.quota(t, corev1.ResourcePods, fmt.Sprint(quota+21))
	env.hostPods(t, quota+21)
	t.Logf("asked %d times more for 21 pods", asked.Load()-before)
	if n := asked.Load() - before; n > 150 {
		t.Errorf("the host was asked %d times to create 21 pods", n)
	}
}

// T8, B5: a space that sleeps with a pod that the host's quota refused wakes when there is more, and the pod runs.
func TestASpaceThatLacksQuotaWakesWhenThereIsMore(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "quota-wakes")
	env.quota(t, corev1.ResourcePods, "0")
	env.begin(nil)
	pod := newPod("web")
	pod.Spec = plainPods("web", 1).Spec
	must(t, env.virtual.CoreV1().Pods("default").Create, pod)
	env.refusedPods(t, 1)
	asleep := env.sleep()
	defer asleep.stop()
	if n := asleep.wakes.Load(); n != 0 {
		t.Fatalf("woken %d times before anything changed", n)
	}
	env.quota(t, corev1.ResourcePods, "1")
	testhost.Eventually(t, "wake", func(context.Context) error {
		if n := asleep.wakes.Load(); n != 1 {
			return fmt.Errorf("woken %d times", n)
		}
		return nil
	})
	env.begin(nil)
	env.hostPods(t, 1)
}
