// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shard runs many spaces in one process. A space that is awake has its own control plane and syncer; all spaces
// share one set of watches on the host. A space that sleeps takes some kilobytes: an entry in the shard, and its host
// objects in the shared watches (T8).
//
// A space cycles through the states asleep, queued, starting, running, stopping, and asleep again. serve.go holds
// requests until their space is awake. wake.go starts spaces, one after the other. sleep.go puts a space to sleep when
// nothing needs it. keeper.go has the one timer for all spaces. space.go is a running space. When a space fails, its
// conditions (status.go) say why, the shard retries, and all other spaces keep serving.
//
// Commands and the gateway call this package. It does not decide who may use a space, and does not create a space's
// isolation on the host.
package shard
