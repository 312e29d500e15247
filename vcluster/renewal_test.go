// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X4: a space that is awake for decades knows the clients that its CA
// issued last, and no others, whichever CA that is by then.
func TestASpaceRenewsItsCAWhileItRuns(t *testing.T) {
	gateway := newTestGateway(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	c := gateway.config(t, "decades")
	c.Clock = clock
	p := gateway.start(t, c)
	before := clientset(t, admin(t, p))
	list := func(step string, want func(error) bool) {
		t.Helper()
		if _, err := before.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !want(err) {
			t.Errorf("%s: %v", step, err)
		}
	}
	works := func(err error) bool { return err == nil }
	list("it is new", works)
	begin := clock.Now()
	for halves := 1; halves < 50; halves++ {
		at := begin.Add(time.Duration(halves) * 365 * 24 * time.Hour / 2)
		clock.SetTime(at)
		list("its certificate has ended", apierrors.IsUnauthorized)
		before = clientset(t, admin(t, p))
		list("it was renewed", works)
		clock.SetTime(at.Add(pki.ClientLifetime - time.Hour))
		list("its certificate is nearly a day old", works)
	}
	// Upstream publishes what is trusted to API servers that extend this one.
	eventually(t, func() error {
		m, err := clientset(t, p.Loopback()).CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, file := range []string{"client-ca-file", "requestheader-client-ca-file"} {
			if n := strings.Count(m.Data[file], "BEGIN CERTIFICATE"); n < 2 {
				return fmt.Errorf("%d CAs are published as %s", n, file)
			}
		}
		return nil
	})
}
