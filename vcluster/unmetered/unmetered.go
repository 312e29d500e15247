// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unmetered makes client-go's work queues keep no metrics, and those of
// upstream's metrics that have names of tenants for labels keep no names. It is
// for vcluster, and of a process as a whole.
//
// Every work queue with metrics has a goroutine that wakes twice a second to
// say how long its work is under way. An idle API server has twenty-two such
// queues, all of upstream's naming, and those wake-ups are most of what it
// costs. The metrics would be sums over all spaces that tell nothing of one,
// and are served nowhere.
//
// client-go leaves a queue alone if there is no metrics provider. Upstream's API
// server sets one when it is linked in, once and for good; so the package
// remembers what was there before. It is initialized before the one that sets
// it, for Go initializes packages in the order of their paths; should that
// change, or the variable be renamed, queues are as upstream has them. A test
// tells.
package unmetered

import (
	_ "unsafe" // for go:linkname

	"k8s.io/client-go/util/workqueue"
)

//go:linkname provider k8s.io/client-go/util/workqueue.globalMetricsProvider
var provider workqueue.MetricsProvider //nolint:gochecknoglobals // It is client-go's.

// none is the provider of a process that has none.
var none = provider //nolint:gochecknoglobals // It must be read before others write it.

// Set makes the queues that are made from now on keep no metrics, and metrics no
// names. Call it before there are goroutines that make queues, or count.
func Set() {
	hideNames()
	if none != nil {
		provider = none
	}
}
