// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

// slowly is a clock by which all takes as long as lists may take at once.
type slowly struct{ *clocktesting.FakeClock }

func (s slowly) Now() time.Time {
	defer s.Step(listsAtOnce)
	return s.FakeClock.Now()
}

// L3: 20,000 ReplicaSets of one controller had all of 20,000 pods compared with each of their selectors whenever one was scaled down.
func TestHostileListsOfPodsAreNotAllOfAControllersTime(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	ctx, cancel := context.WithTimeout(t.Context(), listsAtOnce) // half of what the second one waits for
	defer cancel()
	view := paceLists(ctx, slowly{clocktesting.NewFakeClock(time.Now())}, factory).Core().V1().Pods()
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
