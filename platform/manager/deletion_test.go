// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// S3, T9: the pod of a space is gone, with all that could write, before anything that it wrote is deleted.
func TestAPodIsGoneBeforeItsSpaceIsDeletedOnTheHost(t *testing.T) {
	m := newMovable(t)
	if err := errors.Join(m.moveStoreToPod(t.Context(), "moved", m.pod), os.MkdirAll(datadir.Dedicated(m.config.DataDir, "moved"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.StoreID(m.config.DataDir, "moved"); err != nil {
		t.Fatal(err)
	}
	m.env.Host = &rest.Config{}
	m.Manager.shard = &shard.Shard{}
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	host, err := client.New(cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	container := []corev1.Container{{Name: "berth", Image: "berth"}}
	template := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault}}
	template.Spec.Template.Spec.Containers = container
	pods := &pod.Pods{Host: host, Platform: "berth", Template: template}
	if _, err := pods.Apply(t.Context(), "moved", nil, "a", nil); err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: template.Namespace, Name: pod.Name("moved")}}
	ending := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: template.Namespace, Name: "moved-0", Labels: map[string]string{pod.Label: "moved", translate.LabelPlatform: "berth"},
	}, Spec: corev1.PodSpec{Containers: container}}
	if err := host.Create(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	m.pods = &dedicatedPods{Pods: pods}
	// It has no client of the host for all else, which would panic if it were used.
	left, err := m.deleteOnce(t.Context(), "moved", &deletion{policy: v1alpha1.DeletionDelete})
	if err != nil || !strings.HasPrefix(left, "pod ") {
		t.Errorf("it waits for %q (%v)", left, err)
	}
	if err := host.Get(t.Context(), client.ObjectKeyFromObject(set), set); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet is still there: %v", err)
	}
}

// T9: a platform that runs no pods any more does not forget one that may be left of a space that it deletes.
func TestAPodThatMayBeLeftIsNotForgotten(t *testing.T) {
	m := newMovable(t)
	dir := datadir.Dedicated(m.config.DataDir, "moved")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if left, err := m.removePod(t.Context(), "moved"); err != nil || left != "" {
		t.Errorf("of a process of this machine: %q (%v)", left, err)
	}
	if err := newIncarnation(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := m.removePod(t.Context(), "moved"); err == nil || !strings.Contains(err.Error(), "start berth with --dedicated-pods") || !strings.Contains(err.Error(), dir) {
		t.Errorf("of a pod: %v", err)
	}
}
