// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// X2: the certificate of a former owner neither wakes a space nor is good in one that is awake, and a change of owners wakes none.
func TestCertificatesOfFormerOwnersWakeNoSpace(t *testing.T) {
	source := &access.Source{}
	owned := &access.State{Space: "solar", Tenant: "solar", Access: v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}}}}
	source.Set(owned)
	s := newEnv(t, func(c *shard.Config) {
		c.Settings = func(string) shard.Settings { return shard.Settings{Access: source} }
	})
	startSpace(t, s.Shard, "solar")
	ca, err := pki.OpenCA(filepath.Join(s.config.Dir, "solar", "pki"), pki.SpaceCA("solar"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.ClientForOwner(time.Hour, pki.Owner{Kind: "User", Name: "alice"}, "alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	alice := s.at(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pair.Cert, KeyData: pair.Key}}, "solar")
	if err := readOnce(t, alice); err != nil {
		t.Fatalf("an owner: %v", err)
	}
	source.Set(&access.State{Space: "solar"})
	if err := readOnce(t, alice); !apierrors.IsUnauthorized(err) {
		t.Errorf("a former owner, while the space is awake: %v", err)
	}
	s.falls(t, "solar")
	if err := readOnce(t, alice); !apierrors.IsUnauthorized(err) {
		t.Errorf("a former owner, while the space sleeps: %v", err)
	}
	source.Set(owned)
	s.is(t, "solar", shard.ReasonAsleep, metav1.ConditionTrue)
	if err := readOnce(t, alice); err != nil {
		t.Errorf("an owner again: %v", err)
	}
}
