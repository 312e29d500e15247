// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// L3: a space may have tens of thousands of pods. A change that means nothing to them has none of them looked at; one that
// does has all.
func TestHostilePolicyChangesDoNotLookAtAllPods(t *testing.T) {
	t.Parallel()
	const many = 30
	env := synced(t, "policy-churn")
	for i := range many {
		must(t, env.virtual.CoreV1().Pods("default").Create, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: ptr.To(false), SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/wait"}},
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		})
	}
	// Once a pod that was made after them is on the host, all of them have been told.
	must(t, env.virtual.CoreV1().Pods("default").Create, newPod("last"))
	awaited(t, "see the last pod on the host", env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName("last"), nil)
	policies := env.virtual.NetworkingV1().NetworkPolicies("default")
	must(t, policies.Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	// What is made later in another namespace is on the host: then all before it has been told.
	told := func(patch, next string) {
		t.Helper()
		if _, err := policies.Patch(t.Context(), "all", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		must(t, env.virtual.NetworkingV1().NetworkPolicies("kube-public").Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: next}})
		awaited(t, "see the next one on the host", env.host.NetworkingV1().NetworkPolicies(env.space.HostNamespace()).Get, env.space.HostName("kube-public", next, translate.LimitSubdomain), nil)
		env.idle(t)
	}
	told(`{}`, "before")
	before := env.run.syncer.Stats().Done
	told(`{"metadata":{"annotations":{"a":"b"}}}`, "first")
	if n := env.run.syncer.Stats().Done - before; n >= many {
		t.Errorf("%d objects were looked at as an annotation changed", n)
	}
	before = env.run.syncer.Stats().Done
	told(`{"spec":{"podSelector":{"matchLabels":{"app":"web"}}}}`, "second")
	if n := env.run.syncer.Stats().Done - before; n < many {
		t.Errorf("%d objects were looked at as the selector changed, want all %d pods", n, many)
	}
}

// L3: what a pod refers to is read as the pod comes, and not again with each change of the pod.
func TestHostilePodChangesDoNotReadWhatThePodRefersTo(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	env := newEnv(t, "refs-churn")
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toSpace && c.Method == http.MethodGet && strings.Contains(c.URL.Path, "/configmaps/") {
			reads.Add(1)
		}
		return send()
	})
	v := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "refers"},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for i := range 50 {
		v.Spec.Containers[0].EnvFrom = append(v.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("none-", i)}, Optional: ptr.To(true),
		}})
	}
	pods := env.virtual.CoreV1().Pods("default")
	must(t, pods.Create, v)
	testhost.Eventually(t, "have them read", func(context.Context) error {
		if reads.Load() < 50 {
			return fmt.Errorf("%d were", reads.Load())
		}
		return nil
	})
	env.idle(t)
	before, done := reads.Load(), env.run.syncer.Stats().Done
	if _, err := pods.Patch(t.Context(), "refers", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "have the pod looked at", func(context.Context) error {
		if env.run.syncer.Stats().Done == done || !env.run.syncer.Idle() {
			return errors.New("it was not")
		}
		return nil
	})
	if n := reads.Load() - before; n >= 50 {
		t.Errorf("%d ConfigMaps were read as a label of the pod changed", n)
	}
}

// L3: recorders keep messages of thousands of events in memory, and a refusal names each field at fault.
func TestHostileRefusalsAreBrief(t *testing.T) {
	t.Parallel()
	env := synced(t, "wordy")
	v := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "wordy"}}
	v.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	for i := range 900 {
		v.Spec.Ingress[0].From = append(v.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)}})
	}
	must(t, env.virtual.NetworkingV1().NetworkPolicies("default").Create, v)
	env.awaitWarning(t, "NetworkPolicy", "wordy", "is closed to spaces", "spec.ingress[0].from[0]")
	events, err := env.virtual.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if len(e.Message) > 1<<10 {
			t.Errorf("an event of %s says %d KiB", e.InvolvedObject.Name, len(e.Message)>>10)
		}
	}
}
