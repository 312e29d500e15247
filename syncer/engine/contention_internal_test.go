// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contended is a host whose quota others count up, so that it has conflicts.
type contended struct {
	client.Client
	conflicts, tries int
}

func (c *contended) Create(context.Context, client.Object, ...client.CreateOption) error {
	if c.tries++; c.tries <= c.conflicts {
		return apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "berth", errors.New("the object has been modified"))
	}
	return nil
}

// S7: many who count up one quota at once meet more than a few conflicts. None of
// them is worth the second that a reconcile waits that was refused.
func TestACreateOutlastsManyConflictsOverTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &contended{conflicts: 6}
		if err := CreateOnHost(t.Context(), host, &corev1.Pod{}); err != nil {
			t.Errorf("after %d tries: %v", host.tries, err)
		}
	})
}

// S7: a host that has nothing but conflicts is left alone after a while.
func TestACreateEndsWhenConflictsDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &contended{conflicts: 1 << 20}
		if err := CreateOnHost(t.Context(), host, &corev1.Pod{}); !apierrors.IsConflict(err) || host.tries > 20 {
			t.Errorf("after %d tries: %v", host.tries, err)
		}
	})
}

// S7: a syncer that stops does not wait for its tries.
func TestACreateEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		host := &contended{conflicts: 1 << 20}
		if err := CreateOnHost(ctx, host, &corev1.Pod{}); err == nil || host.tries > 1 {
			t.Errorf("after %d tries: %v", host.tries, err)
		}
	})
}
