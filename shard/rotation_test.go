// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// kubeconfig is one that is issued for a space that need not run.
func (s *testEnv) kubeconfig(t *testing.T, name string) *rest.Config {
	t.Helper()
	data, err := vcluster.ClientKubeconfig(vcluster.Config{
		Name: name, Dir: filepath.Join(s.config.Dir, name), Endpoint: s.config.Endpoint(name), ServingCA: s.config.ServingCA(),
	}, "admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return s.at(c, name)
}

// rotate replaces both keys of a space, so that nothing is good that was issued before.
func (s *testEnv) rotate(t *testing.T, name string) {
	t.Helper()
	keys := filepath.Join(s.config.Dir, name, "pki")
	ca, err := pki.OpenCA(keys, pki.SpaceCA(name))
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := pki.RotateServiceAccountKey(keys, s.clock.Now(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	if err := s.Restart(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// X2: a space whose keys are rotated while it is awake refuses what was issued before, also what is under way, and
// serves who has something new, without a refusal in between.
func TestASpaceThatIsAwakeRunsWithNewKeys(t *testing.T) {
	s := newEnv(t)
	space := startSpace(t, s.Shard, "rotated")
	before := s.admin(t, space, "rotated")
	client := testhost.Clientset(t, before)
	token := tokenOf(t, client)
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	s.rotate(t, "rotated")
	ended := time.NewTimer(testhost.Timeout)
	defer ended.Stop()
	for open := true; open; {
		select {
		case _, open = <-watch.ResultChan():
		case <-ended.C:
			t.Fatal("a watch of before goes on")
		}
	}
	bearer := rest.AnonymousClientConfig(before)
	bearer.BearerToken = token
	for what, c := range map[string]*rest.Config{"a kubeconfig": before, "a token": bearer} {
		if err := readOnce(t, c); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s of before: %v", what, err)
		}
	}
	if err := readOnce(t, s.kubeconfig(t, "rotated")); err != nil {
		t.Errorf("a new kubeconfig: %v", err)
	}

	// Clients that may go on see no refusal while the space restarts.
	after := s.kubeconfig(t, "rotated")
	done, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := readOnce(t, after); err != nil {
				failed <- err
				return
			}
		}
	}()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
		if err := s.Restart(ctx, "rotated"); err != nil {
			t.Error(err)
		}
		cancel()
	}
	close(done)
	if err := <-failed; err != nil && !interrupted(err) {
		t.Errorf("while the space restarts: %v", err)
	}
}

// interrupted reports whether a request was under way when its space stopped, which clients try again.
func interrupted(err error) bool {
	return !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

// X2: so does one that sleeps; and what was revoked does not even wake it.
func TestRevokedCredentialsDoNotWakeASpace(t *testing.T) {
	s := newEnv(t)
	space := startSpace(t, s.Shard, "revoked")
	before := s.admin(t, space, "revoked")
	if err := readOnce(t, before); err != nil {
		t.Fatal(err)
	}
	s.falls(t, "revoked")
	s.rotate(t, "revoked")
	if err := readOnce(t, before); !apierrors.IsUnauthorized(err) {
		t.Errorf("a kubeconfig of before: %v", err)
	}
	s.is(t, "revoked", shard.ReasonAsleep, metav1.ConditionTrue)
	if err := readOnce(t, s.kubeconfig(t, "revoked")); err != nil {
		t.Errorf("a new kubeconfig: %v", err)
	}
	s.is(t, "revoked", shard.ReasonRunning, metav1.ConditionTrue)
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	if err := s.Restart(ctx, "nobody"); !errors.Is(err, shard.ErrUnknown) {
		t.Errorf("a space that is not there: %v", err)
	}
}
