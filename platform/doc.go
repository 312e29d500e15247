// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package platform runs spaces on a host cluster: it is what `berth up` and `berth serve` have in common. It opens the
// data directory and the host, isolates each space on the host, starts the shard and the processes of dedicated spaces,
// and serves clients, pods, metrics, snapshots, and the control socket.
//
// Each Space object on the host that names the platform is a space. The platform reconciles them: a space is created,
// changed, and deleted as its object says, and the status of the object says how the space is. What has to survive a
// crash is in the object, or in the directory of the space (docs/concepts/space-lifecycle.md has the steps).
//
// A caller fills in a [Config], checks it by [Config.Complete], makes a [Platform] of it by [New], and calls
// [Platform.Run], which returns when its context ends. [RunDedicated] is the same for the process of one dedicated space.
//
// The package knows no flags and prints nothing. An error about a value of the configuration is a [*FieldError], so that
// the caller can say by which flag the value was set.
package platform
