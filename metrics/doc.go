// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what a berth process does, and shows it to Prometheus.
// `berth up` makes one [Metrics], lets the gateway and the shard tell it what
// happens, and serves [Metrics.Handler] to the platform's admins, never to a
// tenant. docs/reference/metrics.md describes each metric; a test holds it to that.
//
// Labels take few values: the names of the spaces that there are, which tenants
// don't choose, and words of this package. What is known of a space that is
// deleted goes with it.
//
// It asks and never acts, and reads no store of a space that sleeps.
package metrics
