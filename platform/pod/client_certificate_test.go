// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// S10: connections to pods share a certificate, until half of its life has passed.
func TestConnectionsToPodsShareACertificate(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	c := NewClientCertificate(ca, clock)
	var last []byte
	for _, step := range []struct {
		after time.Duration
		isNew bool
	}{{0, true}, {0, false}, {11 * time.Hour, false}, {2 * time.Hour, true}, {time.Hour, false}} {
		clock.Step(step.after)
		now, err := c.Get()
		if err != nil {
			t.Fatal(err)
		}
		if isNew := !bytes.Equal(now.Certificate[0], last); isNew != step.isNew {
			t.Errorf("after another %s, the certificate is new: %t", step.after, isNew)
		}
		last = now.Certificate[0]
	}
}
