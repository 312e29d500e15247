// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patches estimates what it takes to apply a patch to an object, before an API server does so: nothing can interrupt
// it, and a request of 40 KB can take it minutes. It is for vcluster.
//
// A [Patch] is a patch's text, counted while it is read. A [Shape] is what counts of an object. [Patch.Check] compares the
// estimate of both with the limit patch-steps.
package patches
