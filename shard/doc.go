// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shard gives many spaces a place in one process: for each that is
// awake its control plane and its syncer, over one set of host watches for all;
// for each that sleeps a row, which with its host objects in the shared watches
// is some kilobytes (T8).
//
// A space goes round: asleep → queued → starting → running → stopping → asleep.
// serve.go holds the requests that find it asleep, wake.go starts it in its
// turn, sleep.go puts it to sleep when nothing needs it, keeper.go looks at the
// clock for all of them, and space.go is what runs. What goes wrong in one is
// told in its conditions (status.go) and tried again, while the rest serve.
//
// Commands and the gateway call it. Who may have which space is not its
// business, nor what stands on the host for a space.
package shard
