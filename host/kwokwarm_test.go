// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// Without the warming, this ends the test's process ("concurrent map writes"),
// or fails under the race detector.
func TestStagesAreMatchedAtOnceWhenWarm(t *testing.T) {
	if err := warmExpressions(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		nodes, nodeErr := nodeLifecycle()
		pods, podErr := podLifecycle()
		if nodeErr != nil || podErr != nil {
			t.Fatal(nodeErr, podErr)
		}
		match := func(stages lifecycle.Lifecycle, data any) {
			if _, err := stages.Match(context.Background(), &lifecycle.Event{Data: data}); err != nil {
				t.Error(err)
			}
		}
		group.Go(func() { match(nodes, &corev1.Node{}) })
		group.Go(func() { match(pods, &corev1.Pod{}) })
	}
	group.Wait()
}
