// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What Berth writes on host objects.
const (
	labelSpace          = "berth.dev/space"
	labelNamespace      = "berth.dev/namespace"
	annotationNamespace = "berth.dev/namespace"
	annotationName      = "berth.dev/name"
	annotationUID       = "berth.dev/uid"
)

// hostNamespace is where the objects of the space demo are on the host.
const hostNamespace = "berth-demo"

// hostName is what an object of the space demo is called on the host.
func hostName(namespace, name string) string { return "demo--" + namespace + "--" + name }

// newPod is a pod with one container named c.
func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// run creates a pod and returns it once it runs.
func (c *cluster) run(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if _, err := c.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create pod %s/%s: %v", namespace, pod.Name, err)
	}
	return c.awaitRunning(t, namespace, pod.Name)
}

// awaitRunning returns a pod once it runs and is ready.
func (c *cluster) awaitRunning(t *testing.T, namespace, name string) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, func() (err error) {
		pod, err = c.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !isRunning(pod) {
			return fmt.Errorf("pod %s/%s does not run: %+v", namespace, name, pod.Status)
		}
		return nil
	})
	return pod
}

func isRunning(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// awaitPods returns the pods of a selector once there are count of them and all run.
func (c *cluster) awaitPods(t *testing.T, namespace, selector string, count int) (pods []corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		list, err := c.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		running := 0
		for i := range list.Items {
			if isRunning(&list.Items[i]) {
				running++
			}
		}
		if running != count || len(list.Items) != count {
			return fmt.Errorf("%d of %d pods %s run, want %d", running, len(list.Items), selector, count)
		}
		pods = list.Items
		return nil
	})
	return pods
}

// awaitEvent returns the first event about a thing, of that reason.
func (c *cluster) awaitEvent(t *testing.T, namespace, kind, name, reason string) (event corev1.Event) {
	t.Helper()
	eventually(t, func() error {
		list, err := c.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var about []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name {
				if e.Reason == reason {
					event = e
					return nil
				}
				about = append(about, e.Reason+": "+e.Message)
			}
		}
		return fmt.Errorf("no event %s about %s %s/%s, only %q", reason, kind, namespace, name, about)
	})
	return event
}

// awaitGone returns once get says that there is nothing.
func awaitGone[T any](t *testing.T, what string, get func(context.Context, string, metav1.GetOptions) (T, error), name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s %s is still there", what, name), err)
	})
}

// await returns a named object once check is content with it.
func await[T any](
	t *testing.T, get func(context.Context, string, metav1.GetOptions) (T, error), name string, check func(T) error,
) (object T) {
	t.Helper()
	eventually(t, func() (err error) {
		if object, err = get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(object)
	})
	return object
}

// there accepts any object.
func there[T any](T) error { return nil }

// identity is what a host object says of the virtual object it is for.
type identity struct {
	space, namespace, name string
	uid                    types.UID
}

func identityOf(host metav1.Object) identity {
	a := host.GetAnnotations()
	return identity{host.GetLabels()[labelSpace], a[annotationNamespace], a[annotationName], types.UID(a[annotationUID])}
}
