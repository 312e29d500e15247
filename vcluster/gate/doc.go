// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate lets requests into a control plane while it runs, and waits for those that are in it when it stops: a
// [Gate] before all of its handlers, and a [Latch] before the parts that outlive a request.
//
// It is called by vcluster. It never reads a request.
package gate
