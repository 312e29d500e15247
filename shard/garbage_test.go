// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// T8: a change on the host wakes a space, also when what was left of it has been
// made anew to give memory back.
func TestAChangeOnTheHostWakesASpaceWhoseMemoryWasGivenBack(t *testing.T) {
	s := newEnv(t)
	startSpace(t, s.Shard, "given-back")
	s.falls(t, "given-back")
	held := func() *corev1.Service { return s.Host().Service("given-back", "default", "kubernetes") }
	before := held()
	testhost.Eventually(t, "see what is held of it made anew", func(context.Context) error {
		s.clock.Step(time.Second)
		switch is := held(); {
		case is == nil || is.ResourceVersion != before.ResourceVersion:
			t.Fatalf("it was %v, and is %v", before, is)
		case is == before:
			return errors.New("it is where it was")
		}
		return nil
	})
	s.is(t, "given-back", shard.ReasonAsleep, metav1.ConditionTrue)
	of := translate.Space{Name: "given-back"}
	services := testhost.Clientset(t, theHost(t).Config()).CoreV1().Services(of.HostNamespace())
	_, err := services.Patch(t.Context(), of.HostName("default", "kubernetes", translate.LimitLabel), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"someone":"was here"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.is(t, "given-back", shard.ReasonRunning, metav1.ConditionTrue)
}
