// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// idle is after how long without requests the spaces of these tests sleep.
const idle = 15 * time.Minute

// testEnv is a shard whose spaces sleep, and whose clock stands until it is moved.
type testEnv struct {
	*shard.Shard
	clock  *clocktesting.FakeClock
	server *httptest.Server
	config shard.Config
}

func newEnv(t *testing.T, change ...func(*shard.Config)) *testEnv {
	t.Helper()
	c := config(t)
	s := &testEnv{clock: clocktesting.NewFakeClock(time.Now())}
	c.Clock, c.Idle = s.clock, func(string) shard.Idle { return shard.Idle{After: idle} }
	for _, f := range change {
		f(&c)
	}
	if clock, ok := c.Clock.(*clocktesting.FakeClock); ok {
		s.clock = clock
	}
	s.config = c
	s.Shard = start(t, c)
	t.Cleanup(func() { stop(t, s.Shard) })
	// Like the gateway.
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		http.StripPrefix("/"+name, s.Handler(name)).ServeHTTP(w, r)
	}))
	s.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

// admin is what the space's admin has, at the test's server.
func (s *testEnv) admin(t *testing.T, space *shard.Space, name string) *rest.Config {
	t.Helper()
	kubeconfig, err := space.Kubeconfig("admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return s.at(c, name)
}

func (s *testEnv) at(c *rest.Config, name string) *rest.Config {
	c = rest.CopyConfig(c)
	c.Host = s.server.URL + "/" + name
	c.CAData, c.Insecure = nil, true
	return c
}

func (s *testEnv) is(t *testing.T, name, reason string, status metav1.ConditionStatus) {
	t.Helper()
	testhost.Eventually(t, name+" is "+reason, func(context.Context) error {
		got, ok := s.Status(name)
		if !ok {
			return errors.New("has no place")
		}
		if ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady); ready.Reason != reason || ready.Status != status {
			return fmt.Errorf("is %s, Ready=%s: %s", ready.Reason, ready.Status, ready.Message)
		}
		return nil
	})
}

// falls moves the clock until the space sleeps.
func (s *testEnv) falls(t *testing.T, name string) {
	t.Helper()
	s.clock.Step(idle)
	testhost.Eventually(t, name+" falls asleep", func(context.Context) error {
		got, _ := s.Status(name)
		if reason := got.Conditions[0].Reason; reason != shard.ReasonAsleep {
			s.clock.Step(5 * time.Second) // it may be busy for now
			return fmt.Errorf("is %s", reason)
		}
		return nil
	})
}

// readOnce reads a space, without what a client would try again.
func readOnce(t *testing.T, c *rest.Config) error {
	t.Helper()
	return testhost.Clientset(t, c).CoreV1().RESTClient().Get().Resource("pods").Namespace("default").MaxRetries(0).Do(t.Context()).Error()
}

func tokenOf(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	var token string
	testhost.Eventually(t, "token", func(ctx context.Context) error {
		request, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](7200)}}, metav1.CreateOptions{})
		if err == nil {
			token = request.Status.Token
		}
		return err
	})
	return token
}
