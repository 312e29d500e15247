// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package platform runs spaces on a host cluster. It is what `berth up` and `berth serve` have in common: it opens the
// data directory, the host, and the listeners, and serves clients, pods, metrics, and the control socket.
//
// The packages below do the rest: [manager] makes each space match its Space object on the host, specs translates specs
// into settings, datadir is the layout of the data directory, kubeconfig issues credentials, and process is the
// configuration of each process of a platform.
//
// A caller fills in a [Config], calls [Config.Complete], makes a [Platform] with [New], and calls [Platform.Run], which
// returns when its context ends. [manager.RunDedicated] is the equivalent for the process of one dedicated space.
//
// The package has no flags and prints nothing. The error for a configuration value is a [*fielderror.Error], so that
// the caller can name the flag.
package platform
