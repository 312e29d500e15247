// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const testTimeout = 60 * time.Second

func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, testTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("after %s: %v", testTimeout, last)
	}
}

func newNamespace(t *testing.T, client kubernetes.Interface, labels map[string]string) string {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec()}
}

// createPod creates a pod once the namespace has its service account, without
// which admission turns pods away.
func createPod(t *testing.T, client kubernetes.Interface, namespace string, pod *corev1.Pod) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

func newClaim(name, class string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func listPods(t *testing.T, client kubernetes.Interface, namespace string) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func awaitPhase(t *testing.T, client kubernetes.Interface, namespace, name string, phase corev1.PodPhase) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != phase {
			err = fmt.Errorf("pod %s is %s, want %s: %v", name, pod.Status.Phase, phase, pod.Status.Conditions)
		}
		return err
	})
}

func awaitBound(t *testing.T, client kubernetes.Interface, namespace, claim string) *corev1.PersistentVolume {
	t.Helper()
	var volume *corev1.PersistentVolume
	eventually(t, func(ctx context.Context) error {
		c, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %s is %s", claim, c.Status.Phase)
		}
		volume, err = client.CoreV1().PersistentVolumes().Get(ctx, c.Spec.VolumeName, metav1.GetOptions{})
		return err
	})
	return volume
}

func awaitVolumeGone(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		volume, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("volume %s is %s", name, volume.Status.Phase)
		}
		return err
	})
}
