// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/bounds"
)

func workloadsSeen(t *testing.T, name string) informers.SharedInformerFactory {
	t.Helper()
	return Workloads(name, NewPace(t.Context(), clock.RealClock{}, NewShare(bounds.NewAccount(nil))), informers.NewSharedInformerFactory(fake.NewClientset(), 0))
}

// L3: whenever one of 1,000 ReplicaSets of a Deployment changed, its controller took half a minute to compare their templates.
func TestHostileDeploymentsHaveNoMoreRevisionsThanTheirControllerCanCompare(t *testing.T) {
	revisions := func(owner string, n, bytes int) (all []*appsv1.ReplicaSet) {
		for i := range n {
			r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("%s-%d", owner, i), CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
			}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0)}}
			r.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{strings.Repeat("x", bytes)}}}
			if owner != "" {
				r.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
			}
			all = append(all, r)
		}
		return all
	}
	for name, c := range map[string]struct {
		owner             string
		n, bytes, visible int
	}{
		"large":            {"d", 1000, 60_000, 17},
		"few":              {"d", fewRevisions, 200_000, fewRevisions},
		"small":            {"d", 500, 1000, 500},
		"without an owner": {"", 100, 60_000, 100},
	} {
		t.Run(name, func(t *testing.T) {
			informer := workloadsSeen(t, names.DeploymentController).Apps().V1().ReplicaSets()
			all := append(revisions(c.owner, c.n, c.bytes), revisions("other", 3, 100)...)
			all[0].Spec.Replicas = ptr.To[int32](1)
			for _, r := range all {
				if err := informer.Informer().GetIndexer().Add(r); err != nil {
					t.Fatal(err)
				}
			}
			seen, err := informer.Lister().ReplicaSets("default").List(labels.Everything())
			if err != nil || len(seen) != c.visible+3 {
				t.Fatalf("%d ReplicaSets, want %d: %v", len(seen), c.visible+3, err)
			}
			found := map[string]bool{}
			for _, r := range seen {
				found[r.Name] = true
			}
			if oldest, newest := fmt.Sprintf("%s-0", c.owner), fmt.Sprintf("%s-%d", c.owner, c.n-1); !found[oldest] || !found[newest] {
				t.Errorf("no %s, which has replicas, or no %s, which is the newest: %v", oldest, newest, found)
			}
			if _, err := informer.Lister().ReplicaSets("default").Get(c.owner + "-1"); err != nil {
				t.Errorf("one that is not listed: %v", err)
			}
		})
	}
}

// L3: each change of the labels of a pod without an owner had all selectors of its namespace parsed: seconds, in a full store. What
// finds them without that finds the same.
func TestWorkloadsThatSelectAPodAreThoseThatUpstreamFinds(t *testing.T) {
	keys, values := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"})
	requirement := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: keys.Draw(t, "key"), Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfN(values, 1, 2).Draw(t, "values")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: rapid.MapOf(keys, values).Draw(t, "labels")}}
		factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
		for i := range rapid.IntRange(0, 3).Draw(t, "workloads") {
			s := rapid.Ptr(rapid.Custom(func(t *rapid.T) metav1.LabelSelector {
				return metav1.LabelSelector{MatchLabels: rapid.MapOf(keys, values).Draw(t, "match"), MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "expressions")}
			}), true).Draw(t, "selector")
			m := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}
			for _, err := range []error{
				factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Selector: s}}),
				factory.Apps().V1().StatefulSets().Informer().GetIndexer().Add(&appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Selector: s}}),
				factory.Batch().V1().Jobs().Informer().GetIndexer().Add(&batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Selector: s}}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		sets := Workloads(names.ReplicaSetController, nil, factory).Apps().V1().ReplicaSets().Lister()
		want, wantErr := factory.Apps().V1().ReplicaSets().Lister().GetPodReplicaSets(pod)
		got, err := sets.GetPodReplicaSets(pod)
		compare(t, "ReplicaSets", len(got), len(want), err, wantErr)
		stateful := Workloads(names.StatefulSetController, nil, factory).Apps().V1().StatefulSets().Lister()
		wantStateful, wantErr := factory.Apps().V1().StatefulSets().Lister().GetPodStatefulSets(pod)
		gotStateful, err := stateful.GetPodStatefulSets(pod)
		compare(t, "StatefulSets", len(gotStateful), len(wantStateful), err, wantErr)
		jobs := Workloads(names.JobController, nil, factory).Batch().V1().Jobs().Lister()
		wantJobs, wantErr := factory.Batch().V1().Jobs().Lister().GetPodJobs(pod)
		gotJobs, err := jobs.GetPodJobs(pod)
		compare(t, "Jobs", len(gotJobs), len(wantJobs), err, wantErr)
	})
}

func compare(t *rapid.T, what string, got, want int, err, wantErr error) {
	t.Helper()
	if got != want || (err == nil) != (wantErr == nil) {
		t.Errorf("%d %s (%v), want %d (%v)", got, what, err, want, wantErr)
	}
}
