// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
)

// dies stops a shard, but leaves the notes of which spaces are active as they
// are, as if its process had died.
func (s *testEnv) dies(t *testing.T) {
	t.Helper()
	left := os.DirFS(s.config.ActiveDir)
	kept := t.TempDir()
	if err := os.CopyFS(filepath.Join(kept, "active"), left); err != nil {
		t.Fatal(err)
	}
	times := map[string]time.Time{}
	for _, name := range s.notes(t) {
		info, err := os.Stat(filepath.Join(s.config.ActiveDir, name))
		if err != nil {
			t.Fatal(err)
		}
		times[name] = info.ModTime()
	}
	stop(t, s.Shard)
	for _, name := range s.notes(t) {
		if data, err := os.ReadFile(filepath.Join(s.config.ActiveDir, name)); err != nil || strings.Contains(string(data), "running") {
			t.Fatalf("after a clean stop %s holds %s (%v)", name, data, err)
		}
	}
	if err := os.RemoveAll(s.config.ActiveDir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(s.config.ActiveDir, os.DirFS(filepath.Join(kept, "active"))); err != nil {
		t.Fatal(err)
	}
	for name, at := range times {
		if err := os.Chtimes(filepath.Join(s.config.ActiveDir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *testEnv) notes(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(s.config.ActiveDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// T8, S1: a space that ends the process again and again is started after the
// others, then not for itself any more but after ever longer pauses, and says so.
func TestHostileASpaceThatEndsTheProcessIsHeldBack(t *testing.T) {
	clock, active := clocktesting.NewFakeClock(time.Now()), filepath.Join(t.TempDir(), "active")
	dir := t.TempDir()
	again := func() *testEnv {
		return newEnv(t, func(c *shard.Config) { c.Dir, c.ActiveDir, c.Clock, c.Idle = dir, active, clock, nil })
	}
	s := again()
	good := startSpace(t, s.Shard, "bystander")
	clock.Step(time.Second)
	bad := startSpace(t, s.Shard, "fatal")
	admin, other := s.admin(t, bad, "fatal"), s.admin(t, good, "bystander")
	if err := readOnce(t, admin); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		s.dies(t)
		s = again()
		for _, name := range []string{"fatal", "bystander"} {
			if err := s.Add(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	serves := func(name string) {
		t.Helper()
		c := s.at(admin, name)
		if name != "fatal" {
			c = s.at(other, name)
		}
		if err := readOnce(t, c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}

	restart() // once it may have been anything: it starts, after the other
	serves("fatal")
	serves("bystander")
	restart() // twice
	serves("bystander")
	err := readOnce(t, s.at(admin, "fatal"))
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsServiceUnavailable(err) || status.ErrStatus.Details.RetryAfterSeconds < 1 || !strings.Contains(err.Error(), "held back") {
		t.Fatalf("a space that is held back answers %v", err)
	}
	s.is(t, "fatal", shard.ReasonCrashSuspect, metav1.ConditionFalse)
	s.WarmUp("fatal") // nor for what it may have to do
	s.is(t, "fatal", shard.ReasonCrashSuspect, metav1.ConditionFalse)
	clock.Step(time.Minute)
	s.is(t, "fatal", shard.ReasonRunning, metav1.ConditionTrue)
	serves("bystander")
	restart() // now it is sure
	serves("bystander")
	s.is(t, "fatal", shard.ReasonCrashSuspect, metav1.ConditionFalse)
	got, _ := s.Status("fatal")
	if message := got.Conditions[0].Message; !strings.Contains(message, "ended unexpectedly 2 times") || !strings.Contains(message, "--dedicated") {
		t.Errorf("the condition says %q", message)
	}
	first := got.NextWake.Sub(clock.Now())
	if err := s.Wake(t.Context(), "fatal"); err != nil { // who knows better may
		t.Fatal(err)
	}
	restart()
	got, _ = s.Status("fatal")
	if second := got.NextWake.Sub(clock.Now()); second < 2*first-time.Second {
		t.Errorf("it is held back for %s, then for %s", first, second)
	}
	clock.Step(time.Minute)
	s.is(t, "fatal", shard.ReasonRunning, metav1.ConditionTrue)
	clock.Step(time.Hour) // and survives its trial
	testhost.Eventually(t, "cleared", func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(active, "fatal.json"))
		if err == nil && strings.Contains(string(data), "suspect") {
			clock.Step(5 * time.Minute)
			err = errors.New(string(data))
		}
		return err
	})
	restart()
	serves("fatal")
}

// T8: how much memory the requests of a space hold is on disk before the process ends, so that a quiet space is suspected, too.
// Watches of which nothing waits, such as a GitOps controller has by the hundred, make no space a suspect.
func TestHostileTheMemoryOfASpaceIsNoted(t *testing.T) {
	active := filepath.Join(t.TempDir(), "active")
	s := newEnv(t, func(c *shard.Config) { c.ActiveDir, c.Idle = active, nil })
	space := startSpace(t, s.Shard, "heavy")
	light := startSpace(t, s.Shard, "light").Account()
	for quantity, n := range map[bounds.Quantity]int64{bounds.Watches: 1000, bounds.MemoryBytes: 1000 * bounds.IdleWatch} {
		if err := light.Take(quantity, n); err != nil {
			t.Fatal(err)
		}
	}
	noted := func(want string) {
		t.Helper()
		testhost.Eventually(t, "note "+want, func(context.Context) error {
			data, _ := os.ReadFile(filepath.Join(active, "weights"))
			if string(data) == want {
				return nil
			}
			s.clock.Step(2 * time.Second)
			return fmt.Errorf("noted is %q", data)
		})
	}
	if err := space.Account().Take(bounds.MemoryBytes, 201<<19); err != nil {
		t.Fatal(err)
	}
	noted(`{"heavy":100}`)
	space.Account().Give(bounds.MemoryBytes, 201<<19)
	noted("")
}

// suspected leaves the notes of a process that ended while the spaces were active, as some before.
func suspected(t *testing.T, ends int, names ...string) (active string) {
	t.Helper()
	active = t.TempDir()
	now := time.Now()
	note := func(file string, at time.Time) {
		path := filepath.Join(active, file)
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"running":true,"suspect":{"Active":%d}}`, ends), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	note("began", now.Add(-time.Second))
	for _, name := range names {
		note(name+".json", now)
	}
	return active
}

// T8: suspects are on trial one after the other, the most suspicious first.
func TestHostileSuspectsAreStartedOneAfterTheOther(t *testing.T) {
	names := []string{"first", "second", "third", "third-a", "third-b", "third-c"} // half of them are held back
	active := suspected(t, 4, names...)
	s := newEnv(t, func(c *shard.Config) { c.ActiveDir = active })
	build(t, "first")
	build(t, "second")
	for _, name := range names[:3] {
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		s.is(t, name, shard.ReasonCrashSuspect, metav1.ConditionFalse)
	}
	s.clock.Step(time.Minute)
	s.is(t, "first", shard.ReasonRunning, metav1.ConditionTrue)
	s.is(t, "second", shard.ReasonCrashSuspect, metav1.ConditionFalse)
	if err := s.HeldBack("second"); err == nil { // so that nobody waits for it, such as for a snapshot
		t.Error("a suspect that waits for another's trial is not held back")
	}
	s.clock.Step(time.Minute)
	s.is(t, "second", shard.ReasonRunning, metav1.ConditionTrue)
	s.is(t, "third", shard.ReasonCrashSuspect, metav1.ConditionFalse)
}

// T8: where many are suspected they are on trial in groups, so that none waits for more than eight trials.
func TestHostileManySuspectsAreOnTrialInGroups(t *testing.T) {
	var names []string
	for i := range 32 {
		names = append(names, fmt.Sprintf("suspect-%02d", i))
	}
	active := suspected(t, 5, names...) // 16 are held back, in groups of two
	s := newEnv(t, func(c *shard.Config) { c.ActiveDir = active })
	for i, name := range names[:17] {
		if i < 4 {
			build(t, name)
		}
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		if i < 16 {
			s.is(t, name, shard.ReasonCrashSuspect, metav1.ConditionFalse)
		}
	}
	if err := s.HeldBack(names[16]); err != nil {
		t.Errorf("of 32 more than half are held back: %v", err)
	}
	for _, pair := range [][]string{names[:2], names[2:4]} {
		for _, name := range names[2:4] {
			s.is(t, name, shard.ReasonCrashSuspect, metav1.ConditionFalse)
		}
		s.clock.Step(time.Minute)
		for _, name := range pair {
			s.is(t, name, shard.ReasonRunning, metav1.ConditionTrue)
		}
		s.is(t, names[4], shard.ReasonCrashSuspect, metav1.ConditionFalse)
	}
}

// T8: `berth wake` starts a space that is held back at once, as its condition says.
func TestHostileASuspectStartsAtOnceIfItIsWoken(t *testing.T) {
	active := suspected(t, 4, "first", "held-back", "queued", "x", "y", "z") // half of them are held back
	s := newEnv(t, func(c *shard.Config) { c.ActiveDir = active })
	for _, name := range []string{"first", "held-back", "queued"} {
		build(t, name)
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		s.is(t, name, shard.ReasonCrashSuspect, metav1.ConditionFalse)
	}
	woken := func(name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.WakeNow(ctx, name); err != nil {
			t.Fatal(err)
		}
		s.is(t, name, shard.ReasonRunning, metav1.ConditionTrue)
	}
	woken("first") // which is on trial now
	wait := s.BeginWake("queued")
	s.is(t, "queued", shard.ReasonCrashSuspect, metav1.ConditionFalse)
	woken("queued")
	if err := wait(t.Context()); err != nil {
		t.Error(err)
	}
	woken("held-back")
}

// T8: a start that fails before any space could have been started leaves the suspects known.
func TestHostileAStartThatFailsForgetsNoSuspect(t *testing.T) {
	active := suspected(t, 4, "suspect")
	c := config(t)
	c.ActiveDir = active
	c.Host = rest.AnonymousClientConfig(c.Host)
	c.Host.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if s, err := shard.Start(ctx, c); err == nil {
		stop(t, s)
		t.Fatal("it starts without a host")
	}
	data, err := os.ReadFile(filepath.Join(active, "suspect.json"))
	if err != nil || !strings.Contains(string(data), "running") {
		t.Errorf("of the suspect there is %s (%v)", data, err)
	}
}

// T8: a shard starts whatever is the matter with its notes.
func TestHostileAShardStartsWithoutItsNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newEnv(t, func(c *shard.Config) { c.ActiveDir = filepath.Join(file, "below") })
	if space := startSpace(t, s.Shard, "unnoted"); space == nil {
		t.Error("it does not run")
	}
}
