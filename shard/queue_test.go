// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
)

// blocking has the starts of some spaces hang until they are released.
type blocking struct {
	release chan struct{}
	begun   chan string
}

func newBlocking() *blocking {
	return &blocking{release: make(chan struct{}), begun: make(chan string, 100)}
}

func (b *blocking) prepare(ctx context.Context, space string) error {
	if !strings.HasPrefix(space, "blocked") {
		return nil
	}
	b.begun <- space
	select {
	case <-b.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *blocking) awaitBegun(t *testing.T) (space string) {
	t.Helper()
	testhost.Eventually(t, "a start begins", func(context.Context) error {
		select {
		case space = <-b.begun:
			return nil
		default:
			return errors.New("none has begun")
		}
	})
	return space
}

// S17: spaces that are slow to start don't keep others from starting, whether
// that is known of them beforehand or not.
func TestHostileSlowStartsDoNotHoldUpOthers(t *testing.T) {
	b := newBlocking()
	s := newEnv(t, func(c *shard.Config) { c.StartsMax, c.Prepare = 2, b.prepare })
	defer close(b.release)
	for i := range 4 {
		name := fmt.Sprintf("blocked-%d", i)
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Wake(t.Context(), name) }()
	}
	b.awaitBegun(t)
	b.awaitBegun(t)
	for _, name := range []string{"quick", "quicker"} {
		build(t, name)
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		woken := make(chan error, 1)
		go func() { woken <- s.Wake(t.Context(), name) }()
		testhost.Eventually(t, name+" wakes", func(context.Context) error {
			select {
			case err := <-woken:
				return err
			default:
				s.clock.Step(5 * time.Second)
				return errors.New("it waits for slow starts")
			}
		})
	}
}

// B6: a space that was queued for a visit, and was put to sleep instead, wakes for
// a request before those that are only warmed up.
func TestASpaceWhoseVisitWasCutShortWakesInItsTurn(t *testing.T) {
	b := newBlocking()
	s := newEnv(t, func(c *shard.Config) { c.StartsMax, c.Prepare = 1, b.prepare })
	defer close(b.release)
	build(t, "warmed")
	for _, name := range []string{"blocked", "blocked-warm", "warmed"} {
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = s.Wake(t.Context(), "blocked") }()
	b.awaitBegun(t)
	s.WarmUp("warmed")
	s.is(t, "warmed", shard.ReasonStarting, metav1.ConditionFalse)
	if err := s.Sleep(t.Context(), "warmed"); err != nil {
		t.Fatal(err)
	}
	s.WarmUp("blocked-warm")
	woken := make(chan error, 1)
	go func() { woken <- s.Wake(t.Context(), "warmed") }()
	s.is(t, "warmed", shard.ReasonStarting, metav1.ConditionFalse)
	if err := s.StopSpace(t.Context(), "blocked"); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "it wakes", func(context.Context) error {
		select {
		case err := <-woken:
			return err
		default:
			return errors.New("it waits for a visit")
		}
	})
}

// B13: a space whose host does not answer doesn't say that it syncs.
func TestASpaceSaysThatItsHostDoesNotAnswer(t *testing.T) {
	var gone atomic.Bool
	s := newEnv(t, func(c *shard.Config) {
		c.Host = rest.CopyConfig(c.Host)
		c.Host.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if gone.Load() {
					return nil, errors.New("no route to host")
				}
				return next.RoundTrip(r)
			})
		})
	})
	space := startSpace(t, s.Shard, "cut-off")
	s.is(t, "cut-off", shard.ReasonRunning, metav1.ConditionTrue)
	gone.Store(true)
	createDeployment(t, testhost.Clientset(t, space.Loopback()))
	s.is(t, "cut-off", shard.ReasonHostUnreachable, metav1.ConditionTrue)
	if got, _ := s.Status("cut-off"); !strings.Contains(got.Conditions[0].Message, "no route to host") {
		t.Errorf("the condition says %q", got.Conditions[0].Message)
	}
	gone.Store(false)
	s.is(t, "cut-off", shard.ReasonRunning, metav1.ConditionTrue)
}
