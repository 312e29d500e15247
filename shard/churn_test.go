// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// A space that is stopped while its pods come and go takes them up again where
// they are (S7, T8): nothing is doubled, lost or left over.
func TestASpaceStopsAndStartsWhileItsPodsChurn(t *testing.T) {
	s := start(t, config(t))
	defer stop(t, s)
	space := startSpace(t, s, "churn")
	createDeployment(t, virtual(t, space))
	scale := func(ctx context.Context, client kubernetes.Interface, replicas int) error {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		_, err := client.AppsV1().Deployments("default").Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		churned := make(chan struct{})
		scaled := make(chan struct{}, 1000)
		go func(client kubernetes.Interface) {
			defer close(churned)
			for i := 0; ctx.Err() == nil && scale(ctx, client, 1+i*3%10) == nil; i++ {
				scaled <- struct{}{}
			}
		}(virtual(t, space))
		for range 20 {
			<-scaled
		}
		stopSpace(t, s, "churn")
		<-space.Done()
		if err := space.Err(); err != nil {
			t.Errorf("a stop is no error: %v", err)
		}
		cancel()
		<-churned
		space = startSpace(t, s, "churn")
	}
	client := virtual(t, space)
	if err := scale(t.Context(), client, 4); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "4 pods on both sides", func(ctx context.Context) error { return samePods(ctx, t, client, "churn", 4) })
}

// T8: a space that is put to sleep at once after a write has done what follows
// from it, on the host too: nothing of it waits until the space wakes.
func TestASpaceSleepsWhenWhatItWasToldIsDone(t *testing.T) {
	s := start(t, config(t))
	defer stop(t, s)
	client := virtual(t, startSpace(t, s, "told"))
	host := testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods("berth-told")
	onHost := func() (names []string) {
		t.Helper()
		found, err := host.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range found.Items {
			if id, ok := translate.IdentityOf(&found.Items[i]); ok && found.Items[i].DeletionTimestamp == nil {
				names = append(names, id.Name)
			}
		}
		return names
	}
	woken := func() kubernetes.Interface {
		t.Helper()
		if err := s.Wake(t.Context(), "told"); err != nil {
			t.Fatal(err)
		}
		return virtual(t, s.Space("told"))
	}
	createDeployment(t, client)
	if err := s.Sleep(t.Context(), "told"); err != nil {
		t.Fatal(err)
	}
	if pods := onHost(); len(pods) != 1 {
		t.Errorf("the deployment's pods on the host are %v", pods)
	}
	for range 5 {
		client := woken()
		if err := client.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Sleep(t.Context(), "told"); err != nil {
			t.Fatal(err)
		}
		if pods := onHost(); len(pods) > 0 {
			t.Errorf("on the host are still %v", pods)
		}
		createDeployment(t, woken())
		testhost.Eventually(t, "a pod on the host", func(context.Context) error {
			if len(onHost()) == 0 {
				return errors.New("none yet")
			}
			return nil
		})
	}
}

func samePods(ctx context.Context, t *testing.T, client kubernetes.Interface, space string, count int) error {
	ours, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	theirs, err := testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods("berth-"+space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	inSpace, onHost := map[types.UID]corev1.PodPhase{}, map[types.UID]corev1.PodPhase{}
	for _, v := range ours.Items {
		inSpace[v.UID] = v.Status.Phase
	}
	for _, h := range theirs.Items {
		id, _ := translate.IdentityOf(&h)
		onHost[id.UID] = h.Status.Phase
	}
	for uid, phase := range inSpace {
		if phase != corev1.PodRunning {
			return fmt.Errorf("pod %s is %s", uid, phase)
		}
	}
	if len(inSpace) != count || len(theirs.Items) != count || !maps.Equal(inSpace, onHost) {
		return fmt.Errorf("want %d pods, the space has %v, the host %v", count, inSpace, onHost)
	}
	return nil
}

func createDeployment(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	testhost.Eventually(t, "create deployment", func(ctx context.Context) error {
		_, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
				},
			},
		}, metav1.CreateOptions{})
		return err
	})
}
