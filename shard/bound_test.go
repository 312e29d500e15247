// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
)

// At the bound the space that was idle longest is put to sleep; one in use never is.
func TestNoMoreSpacesAreAwakeThanAllowed(t *testing.T) {
	s := newEnv(t, func(c *shard.Config) { c.SpacesMax, c.WakeTimeout = 2, 30*time.Second })
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{"first", "second"} {
		clients[name] = testhost.Clientset(t, s.admin(t, startSpace(t, s.Shard, name), name))
		s.clock.Step(time.Second)
	}
	build(t, "third")
	if err := s.Add("third"); err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- s.Wake(t.Context(), "third") }()
	s.is(t, "third", shard.ReasonStarting, metav1.ConditionFalse)
	for _, name := range []string{"first", "second"} {
		s.is(t, name, shard.ReasonRunning, metav1.ConditionTrue) // in use until some moments ago
	}
	testhost.Eventually(t, "third wakes", func(context.Context) error {
		select {
		case err := <-woken:
			return err
		default:
			s.clock.Step(5 * time.Second)
			return errors.New("not yet")
		}
	})
	s.is(t, "first", shard.ReasonAsleep, metav1.ConditionTrue)
	s.is(t, "second", shard.ReasonRunning, metav1.ConditionTrue)

	// All in use: the next waits, and is told so.
	for _, space := range []kubernetes.Interface{clients["second"], testhost.Clientset(t, s.admin(t, s.Space("third"), "third"))} {
		watch, err := space.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
	}
	refused := make(chan error, 1)
	go func() {
		refused <- clients["first"].CoreV1().RESTClient().Get().Resource("pods").MaxRetries(0).Do(t.Context()).Error()
	}()
	testhost.Eventually(t, "refusal", func(context.Context) error {
		select {
		case err := <-refused:
			if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "too many other spaces") {
				t.Errorf("with all places in use the answer is %v", err)
			}
			return nil
		default:
			s.clock.Step(time.Second)
			return errors.New("held")
		}
	})
}

// A tenant that asks for many spaces waits for its own spaces; it does not keep
// others' waiting, nor spaces starting and stopping.
func TestOneWhoWantsManySpacesDoesNotStarveTheOthers(t *testing.T) {
	s := newEnv(t, func(c *shard.Config) { c.SpacesMax, c.StartsMax = 2, 1 })
	victim := testhost.Clientset(t, s.admin(t, startSpace(t, s.Shard, "victim"), "victim"))
	greedy := []string{"greedy-0", "greedy-1", "greedy-2", "greedy-3"}
	for _, name := range greedy {
		build(t, name)
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range greedy {
		wg.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if s.Space(name) == nil { // as soon as it sleeps
					_ = s.Wake(ctx, name)
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	// In use, the victim's space is never the one that is put to sleep.
	for range 20 {
		if _, err := victim.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if s.Space("victim") == nil {
			t.Fatal("a space in use was put to sleep")
		}
		s.clock.Step(5 * time.Second)
	}
	// Out of use it sleeps, and comes back in its turn.
	testhost.Eventually(t, "the victim sleeps", func(context.Context) error {
		s.clock.Step(5 * time.Second)
		if s.Space("victim") != nil {
			return errors.New("it is awake")
		}
		return nil
	})
	woken := make(chan error, 1)
	go func() { woken <- s.Wake(t.Context(), "victim") }()
	testhost.Eventually(t, "the victim wakes", func(context.Context) error {
		select {
		case err := <-woken:
			return err
		default:
			s.clock.Step(2 * time.Second)
			return errors.New("it waits")
		}
	})
}
