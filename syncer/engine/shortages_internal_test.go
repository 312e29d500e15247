// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/syncer/resources"
)

// shortOf is a space of which a quota refused these pods, and whom it has called since.
func shortOf(t *testing.T, names ...string) (s *shortages, called map[string]int) {
	t.Helper()
	called = map[string]int{}
	s = &shortages{
		enqueue: func(key Key) { called[key.Name]++ }, after: func(Key, next) {}, changed: func(bool) {},
		of: map[string]*shortage{}, called: map[Key]*shortage{}, others: map[Key]struct{}{},
	}
	for _, name := range names {
		try, err := s.enter(podKey(name), asking("1"))
		if err == nil {
			s.done(try, podKey(name), asking("1"), overQuota())
		}
		s.ended(podKey(name), errWaits)
	}
	return s, called
}

func podKey(name string) Key {
	return Key{Resource: resources.Pods, NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

func overQuota() error {
	return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("exceeded quota: berth"))
}

func asking(cpu string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}}}
}

// L3: who is called and asks for something else by then leaves its turn to the next.
func TestHostilePodThatAsksForSomethingElseTakesNobodysTurn(t *testing.T) {
	s, called := shortOf(t, "a", "b")
	s.ease()
	if called["a"] != 1 || called["b"] != 0 {
		t.Fatalf("called are %v", called)
	}
	try, err := s.enter(podKey("a"), asking("2"))
	if err != nil {
		t.Fatal(err)
	}
	s.done(try, podKey("a"), asking("2"), nil)
	s.ended(podKey("a"), nil)
	if called["b"] != 1 {
		t.Errorf("called are %v: b waits, and nobody calls it", called)
	}
}

// L3: what may be tried, and nobody is called for, does not keep more quota from those who wait.
func TestMoreQuotaCallsThoseWhoWait(t *testing.T) {
	s, called := shortOf(t, "a")
	for _, of := range s.of {
		of.allowed = 1
	}
	s.ease()
	s.ease()
	if called["a"] != 1 {
		t.Errorf("called are %v, want a once", called)
	}
}

// L3: a panic over one pod leaves the others their turns.
func TestHostilePodOverWhichACreatePanicsLeavesTheOthersTheirTurn(t *testing.T) {
	s, called := shortOf(t, "a", "b")
	s.ease()
	k := &Resource[*corev1.Pod]{Engine: &Engine{shortages: s}, Name: resources.Pods, Bound: Bound{most: 1}} // no host: it panics
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		v := asking("1")
		v.Namespace, v.Name = "default", "a"
		_ = k.createHost(t.Context(), v, asking("1"))
	}()
	s.ended(podKey("a"), errors.New("panic"))
	s.ease()
	if called["b"] != 1 {
		t.Errorf("called are %v: b waits for a try that never ends", called)
	}
}
