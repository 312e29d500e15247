// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// T8, M1: a space with DaemonSets wakes for a change of its nodes, one without sleeps
// on. Where the admin takes DaemonSets back, those that are there stay, with their
// pods and without nodes, until somebody deletes them.
func TestASpaceFollowsNodesForItsDaemonSetsOnly(t *testing.T) {
	const label = "follows.example/disk"
	synced, err := resources.Parse([]string{"nodes=all", "daemonsets=translated"})
	if err != nil {
		t.Fatal(err)
	}
	off := config(t)
	on := off
	on.Sync = syncer.Options{Sync: synced}
	placement := translate.Placement{Labels: []string{label}, ByName: true}
	on.Settings = func(string) shard.Settings { return shard.Settings{Placement: placement} }
	s := start(t, on)
	own := virtual(t, startSpace(t, s, "with-sets"))
	startSpace(t, s, "without-sets")
	admin, err := client.New(theHost(t).Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Apply(t.Context(), admin, translate.Space{Name: "with-sets"}, nil, isolation.PlacedBy(placement)); err != nil {
		t.Fatal(err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
	if _, err := own.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hostNodes := testhost.Clientset(t, theHost(t).Config()).CoreV1().Nodes()
	nodes, err := hostNodes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("the host's nodes are %v (%v)", nodes, err)
	}
	count := len(nodes.Items)
	testhost.Eventually(t, "a pod on each node", func(ctx context.Context) error { return samePods(ctx, t, own, "with-sets", count) })

	for _, space := range []string{"with-sets", "without-sets"} {
		testhost.Eventually(t, space+" sleeps", func(ctx context.Context) error {
			if err := s.Sleep(ctx, space); err != nil {
				return err
			}
			return hasReason(s, space, shard.ReasonAsleep) // one of its pods may have changed just then
		})
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"ssd"}}}`, label)
	if _, err := hostNodes.Patch(t.Context(), nodes.Items[0].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "it wakes", func(context.Context) error { return hasReason(s, "with-sets", shard.ReasonRunning) })
	if err := hasReason(s, "without-sets", shard.ReasonAsleep); err != nil {
		t.Errorf("the space without DaemonSets %v", err)
	}
	stop(t, s)

	s = start(t, off)
	defer stop(t, s)
	own = virtual(t, startSpace(t, s, "with-sets"))
	testhost.Eventually(t, "its nodes go", func(ctx context.Context) error {
		left, err := own.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
	if err := samePods(t.Context(), t, own, "with-sets", count); err != nil {
		t.Errorf("disabled: %v", err)
	}
	set.Name = "another"
	if _, err := own.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("disabled, another DaemonSet: %v", err)
	}
	if err := own.AppsV1().DaemonSets("default").Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "its pods go with it", func(ctx context.Context) error { return samePods(ctx, t, own, "with-sets", 0) })
}

func hasReason(s *shard.Shard, space, reason string) error {
	if status, _ := s.Status(space); len(status.Conditions) == 0 || status.Conditions[0].Reason != reason {
		return fmt.Errorf("is %v, want it %s", status.Conditions, reason)
	}
	return nil
}
