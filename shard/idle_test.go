// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
)

// T8 (B18): clients that the admin names are served by a space that is awake, and neither keep it awake nor wake it: those
// who look at all spaces do so all the time.
func TestIgnoredClientsDoNotCountAsUse(t *testing.T) {
	var ignored atomic.Pointer[shard.Clients]
	ignored.Store(&shard.Clients{})
	s := newEnv(t, func(c *shard.Config) {
		c.Idle = func(string) shard.Idle { return shard.Idle{After: idle, Ignored: *ignored.Load()} }
	})
	space := startSpace(t, s.Shard, "quiet")
	admin := s.admin(t, space, "quiet")
	account := rest.AnonymousClientConfig(s.at(admin, "quiet"))
	account.BearerToken = tokenOf(t, testhost.Clientset(t, space.Loopback()))
	tool := rest.CopyConfig(admin)
	tool.UserAgent = "argocd-application-controller/v3"
	for name, c := range map[string]struct {
		clients shard.Clients
		client  *rest.Config
	}{
		"by user agent":             {shard.Clients{UserAgents: []string{"other/", "argocd-"}}, tool},
		"by user":                   {shard.Clients{Users: []string{"admin"}}, admin},
		"by group":                  {shard.Clients{Groups: []string{"system:authenticated"}}, admin},
		"a service account by user": {shard.Clients{Users: []string{"system:serviceaccount:default:default"}}, account},
		"a service account by group": {
			shard.Clients{Groups: []string{"system:serviceaccounts:default"}}, account,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ignored.Store(&shard.Clients{})
			if err := readOnce(t, admin); err != nil { // wakes it
				t.Fatal(err)
			}
			ignored.Store(&c.clients)
			watch, err := testhost.Clientset(t, c.client).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
			if c.client == account { // which has no right to
				if !apierrors.IsForbidden(err) {
					t.Fatalf("a space that is awake answers %v", err)
				}
			} else {
				if err != nil {
					t.Fatalf("a space that is awake answers %v", err)
				}
				defer watch.Stop()
			}
			s.falls(t, "quiet")
			err = readOnce(t, c.client)
			if after, again := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !again || after < 10 || !strings.Contains(err.Error(), "this client does not wake it") {
				t.Errorf("a space that sleeps answers %v, again after %d s", err, after)
			}
			if s.Space("quiet") != nil {
				t.Error("it is awake")
			}
		})
	}
}
