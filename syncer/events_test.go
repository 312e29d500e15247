// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
)

// S2: the host's watches don't keep step, so that what its scheduler says of a new
// pod may come before the pod.
func TestAnEventThatComesBeforeItsPodIsTold(t *testing.T) {
	t.Parallel()
	env := synced(t, "early")
	said := func(pod, message string) {
		must(t, env.host.CoreV1().Events(env.space.HostNamespace()).Create, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: pod},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: env.space.HostNamespace(), Name: env.hostName(pod)},
			Type:           corev1.EventTypeWarning, Reason: "FailedScheduling", Message: message,
			Source: corev1.EventSource{Component: corev1.DefaultSchedulerName},
		})
	}
	plain := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	pods := env.virtual.CoreV1().Pods("default")
	must(t, pods.Create, plain("before"))
	awaited(t, "have a pod on the host", env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName("before"), func(*corev1.Pod) error { return nil })
	said("after", "0/3 nodes are available: 3 Insufficient cpu.")
	said("before", "0/3 nodes are available: 3 Insufficient memory.")
	env.awaitWarning(t, "Pod", "before", "insufficient memory") // so that the one before it was looked at
	must(t, pods.Create, plain("after"))
	env.awaitWarning(t, "Pod", "after", "insufficient cpu")
}

// awaitWarning waits for a warning about an object of the space that holds all words.
func (env *testEnv) awaitWarning(t *testing.T, kind, name string, words ...string) {
	t.Helper()
	testhost.Eventually(t, "hear of "+kind+" "+name, func(ctx context.Context) error {
		events, err := env.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var messages []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name || e.Type != corev1.EventTypeWarning {
				continue
			}
			messages = append(messages, e.Message)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) }) {
				return nil
			}
		}
		return fmt.Errorf("events are %q, want one with %q", messages, words)
	})
}
