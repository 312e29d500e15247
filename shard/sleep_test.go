// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
)

// T8: asleep, nothing of it runs; a request wakes it, and is held, not refused.
func TestASpaceSleepsWhenIdleAndWakesForARequest(t *testing.T) {
	s := newEnv(t)
	client := testhost.Clientset(t, s.admin(t, startSpace(t, s.Shard, "idle"), "idle"))
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.is(t, "idle", shard.ReasonRunning, metav1.ConditionTrue)
	s.falls(t, "idle")
	s.is(t, "idle", shard.ReasonAsleep, metav1.ConditionTrue)
	if s.Space("idle") != nil {
		t.Error("the space runs")
	}

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.is(t, "idle", shard.ReasonRunning, metav1.ConditionTrue)
}

// T8: what counts as use is a request from outside, for as long as it lasts.
func TestAWatchFromOutsideKeepsASpaceAwake(t *testing.T) {
	s := newEnv(t)
	space := startSpace(t, s.Shard, "watched")
	inside, err := testhost.Clientset(t, space.Loopback()).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Stop()
	watch, err := testhost.Clientset(t, s.admin(t, space, "watched")).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.clock.Step(idle)
		if status, _ := s.Status("watched"); status.Requests != 1 || s.Space("watched") == nil {
			t.Fatalf("with a watch under way the space is %+v", status)
		}
	}
	watch.Stop()
	testhost.Eventually(t, "watch ends", func(context.Context) error {
		if status, _ := s.Status("watched"); status.Requests > 0 {
			return errors.New("it is under way")
		}
		return nil
	})
	s.falls(t, "watched")
}

// Strangers cannot wake a space, nor keep it awake.
func TestOnlyACredentialOfTheSpaceWakesIt(t *testing.T) {
	s := newEnv(t)
	space := startSpace(t, s.Shard, "mine")
	admin := s.admin(t, space, "mine")
	token := tokenOf(t, testhost.Clientset(t, space.Loopback()))
	other := startSpace(t, s.Shard, "other")
	foreign := s.admin(t, other, "mine")
	foreignToken := tokenOf(t, testhost.Clientset(t, other.Loopback()))
	with := func(token string) *rest.Config {
		c := rest.AnonymousClientConfig(admin)
		c.BearerToken = token
		return c
	}
	strangers := map[string]*rest.Config{
		"nobody":             with(""),
		"another's cert":     foreign,
		"another's token":    with(foreignToken),
		"no token":           with("not a token"),
		"a token made up":    with(token[:len(token)-8] + "AAAAAAAA"),
		"a very long token":  with(strings.Repeat("A", 40<<10)),
		"a token unsigned":   with("eyJhbGciOiJub25lIn0.eyJpc3MiOiJrdWJlIn0."),
		"a token of one dot": with("."),
	}
	for name, c := range strangers {
		if err := readOnce(t, c); name != "nobody" && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: awake, the space answers %v", name, err)
		}
	}
	if status, _ := s.Status("mine"); status.LastRequest.After(s.clock.Now()) {
		t.Error("a stranger's request counts")
	}
	s.falls(t, "mine")
	for name, c := range strangers {
		if err := readOnce(t, c); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: asleep, the space answers %v, want Unauthorized", name, err)
		}
		if status, _ := s.Status("mine"); status.Conditions[0].Reason != shard.ReasonAsleep {
			t.Fatalf("%s woke the space", name)
		}
	}
	// To ask for its health is not to use it.
	if text, err := testhost.Clientset(t, admin).CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil || !strings.Contains(string(text), "asleep") {
		t.Errorf("asked for its health the sleeping space says %q (%v)", text, err)
	}
	s.is(t, "mine", shard.ReasonAsleep, metav1.ConditionTrue)
	for name, c := range map[string]*rest.Config{"certificate": admin, "token": with(token)} {
		if err := readOnce(t, c); err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		s.is(t, "mine", shard.ReasonRunning, metav1.ConditionTrue)
		s.falls(t, "mine")
	}
}

// T7, D1: a space that cannot run says why, costs little, and comes back by
// itself once it can; the others serve.
func TestABrokenSpaceSaysWhyAndIsTriedAgain(t *testing.T) {
	s := newEnv(t)
	broken := s.admin(t, startSpace(t, s.Shard, "broken"), "broken")
	whole := s.admin(t, startSpace(t, s.Shard, "whole"), "whole")
	s.falls(t, "broken")
	path := filepath.Join(s.config.Dir, "broken", "store.db")
	store, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = readOnce(t, broken)
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsServiceUnavailable(err) || status.ErrStatus.Details.RetryAfterSeconds < 1 {
		t.Errorf("a space that cannot start answers %#v", err)
	}
	if strings.Contains(err.Error(), s.config.Dir) {
		t.Errorf("the tenant learns of the platform's files: %v", err)
	}
	s.is(t, "broken", shard.ReasonFailed, metav1.ConditionFalse)
	got, _ := s.Status("broken")
	if message := got.Conditions[0].Message; !strings.Contains(message, path) {
		t.Errorf("the condition says %q, want what is wrong with %s", message, path)
	}
	if got.NextWake == nil || !got.NextWake.After(s.clock.Now()) {
		t.Errorf("it is tried again at %v", got.NextWake)
	}
	if err := readOnce(t, whole); err != nil {
		t.Errorf("the other space: %v", err)
	}
	if err := testhost.Clientset(t, broken).CoreV1().RESTClient().Get().AbsPath("/livez").MaxRetries(0).Do(t.Context()).Error(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("asked for its health it says %v", err)
	}
	if err := os.WriteFile(path, store, 0o600); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(10 * time.Minute)
	s.is(t, "broken", shard.ReasonRunning, metav1.ConditionTrue)
}

// rowAllowed is what a space that sleeps may cost in memory, in bytes (T8: 32 KiB
// with all that the process keeps for it).
const rowAllowed = 4 << 10

// A space that was registered costs next to nothing until it is wanted.
func TestAnAddedSpaceSleeps(t *testing.T) {
	s := newEnv(t)
	const count = 10000
	before := liveHeap()
	for i := range count {
		if err := s.Add(fmt.Sprintf("added-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if each := (int64(liveHeap()) - int64(before)) / count; each > rowAllowed {
		t.Errorf("a space that sleeps costs %d bytes", each)
	} else {
		t.Logf("a space that sleeps costs %d bytes", each)
	}
	if err := s.Add("added-1"); !errors.Is(err, shard.ErrTaken) {
		t.Errorf("added twice: %v", err)
	}
	s.is(t, "added-1", shard.ReasonAsleep, metav1.ConditionUnknown)
	if list := s.List(); len(list) != count || list[count-1].Name != "added-9999" {
		t.Errorf("the shard lists %d spaces", len(list))
	}
	build(t, "added-7")
	if err := s.Wake(t.Context(), "added-7"); err != nil {
		t.Fatal(err)
	}
	s.is(t, "added-7", shard.ReasonRunning, metav1.ConditionTrue)
	put := make(chan error, 1)
	go func() { put <- s.Sleep(t.Context(), "added-7") }()
	testhost.Eventually(t, "sleep", func(context.Context) error {
		select {
		case err := <-put:
			return err
		default:
			s.clock.Step(time.Second) // it may be busy for now
			return errors.New("not yet")
		}
	})
	s.is(t, "added-7", shard.ReasonAsleep, metav1.ConditionTrue)
	if err := s.Wake(t.Context(), "not-added"); !errors.Is(err, shard.ErrUnknown) {
		t.Errorf("waking what is not there: %v", err)
	}
	stopSpace(t, s.Shard, "added-7")
	if _, ok := s.Status("added-7"); ok {
		t.Error("a stopped space has a place")
	}
}
