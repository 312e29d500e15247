// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package unmetered_test

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // sets the provider, as the API server does

	"github.com/berth-dev/berth/vcluster/unmetered"
)

func queue() workqueue.TypedInterface[string] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "named"})
}

func TestNamedQueuesHaveNoTickerOnceMetricsAreOff(t *testing.T) {
	others := goleak.IgnoreCurrent()
	metered := queue()
	if err := goleak.Find(others); err == nil {
		t.Error("a queue had no ticker before: the package is not needed any more")
	}
	metered.ShutDown()

	unmetered.Set()
	q := queue()
	defer q.ShutDown()
	if err := goleak.Find(others); err != nil {
		t.Errorf("a queue has a goroutine of its own: %v", err)
	}
}
