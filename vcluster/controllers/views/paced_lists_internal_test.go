// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/history"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/timeshare"
)

// slowly is a clock by which all takes as long as lists may take at once.
type slowly struct{ *clocktesting.FakeClock }

func (s slowly) Now() time.Time {
	defer s.Step(listsAtOnce)
	return s.FakeClock.Now()
}

// slowPace is of a controller that runs for half as long as the second list would wait.
func slowPace(t *testing.T) *Pace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listsAtOnce)
	t.Cleanup(cancel)
	return &Pace{ctx, slowly{clocktesting.NewFakeClock(time.Now())}, NewShare(bounds.NewAccount(nil))}
}

// L3: 20,000 ReplicaSets of one controller had all of 20,000 pods compared with each of their selectors whenever one was scaled down.
func TestHostileListsOfPodsAreNotAllOfAControllersTime(t *testing.T) {
	view := Paced(slowPace(t), informers.NewSharedInformerFactory(fake.NewClientset(), 0)).Core().V1().Pods()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	if err := view.Informer().GetIndexer().Add(pod); err != nil {
		t.Fatal(err)
	}
	pods := view.Lister().Pods("default")
	if all, err := pods.List(labels.Everything()); len(all) != 1 || err != nil {
		t.Fatalf("%d pods, %v", len(all), err)
	}
	if _, err := pods.List(labels.Everything()); err == nil || !strings.Contains(err.Error(), "rate") {
		t.Errorf("one more list: %v", err)
	}
}

// L3: a pod that 20,000 ReplicaSets select, or as many Jobs or StatefulSets, had each of them compared with all of 20,000 other pods
// without an owner: minutes for one write. So had orphaned ControllerRevisions with each StatefulSet.
func TestHostileOrphansAreNotAllOfAControllersTime(t *testing.T) {
	const objects = 10
	seen := func(name string) informers.SharedInformerFactory {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		pace := NewPace(ctx, clock.RealClock{}, timeshare.New(time.Microsecond, objects*time.Microsecond)) // enough for one list
		view := Workloads(name, pace, informers.NewSharedInformerFactory(fake.NewClientset(), 0))
		if ListsPods(name) {
			view = Paced(pace, view)
		}
		return view
	}
	index := func(informer cache.SharedIndexInformer, add func(cache.SharedIndexInformer) error, object func(meta metav1.ObjectMeta) any) cache.Indexer {
		if err := add(informer); err != nil {
			t.Fatal(err)
		}
		for i := range objects {
			if err := informer.GetIndexer().Add(object(metav1.ObjectMeta{Namespace: "default", Name: strings.Repeat("a", i+1)})); err != nil {
				t.Fatal(err)
			}
		}
		return informer.GetIndexer()
	}
	want := func(t *testing.T, look func() error) {
		t.Helper()
		if err := look(); err != nil {
			t.Fatal(err)
		}
		if err := look(); err == nil || !strings.Contains(err.Error(), "rate") {
			t.Errorf("one more look-up: %v", err)
		}
	}
	for _, name := range []string{names.ReplicaSetController, names.ReplicationControllerController, names.StatefulSetController, names.JobController} {
		t.Run(name, func(t *testing.T) {
			pods := index(seen(name).Core().V1().Pods().Informer(), controller.AddPodControllerIndexer, func(m metav1.ObjectMeta) any { return &corev1.Pod{ObjectMeta: m} })
			want(t, func() error {
				found, err := controller.FilterPodsByOwner(pods, &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}, "ReplicaSet", true)
				if err == nil && len(found) != objects {
					t.Fatalf("%d pods", len(found))
				}
				return err
			})
		})
	}
	t.Run("revisions", func(t *testing.T) {
		revisions := seen(names.StatefulSetController).Apps().V1().ControllerRevisions()
		all := index(revisions.Informer(), history.AddControllerRevisionControllerIndexer, func(m metav1.ObjectMeta) any { return &appsv1.ControllerRevision{ObjectMeta: m} })
		histories := history.NewHistory(nil, revisions.Lister(), all)
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "1"}}
		want(t, func() error {
			_, err := histories.ListControllerRevisions(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), labels.Everything())
			return err
		})
	})
}
