// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package platform runs spaces on a host cluster: it is what `berth up` and `berth serve` have in common. It opens the
// data directory, the host, and the listeners, and serves clients, pods, metrics, and the control socket.
//
// What runs behind that is the business of packages below: [manager] has each space be as its Space object on the host says;
// specs says what a spec means for the packages that act on it; datadir knows where things are on this machine; kubeconfig
// issues credentials; process has what each process of a platform is told.
//
// A caller fills in a [Config], checks it by [Config.Complete], makes a [Platform] of it by [New], and calls
// [Platform.Run], which returns when its context ends. [manager.RunDedicated] is the same for the process of one dedicated space.
//
// The package knows no flags and prints nothing. An error about a value of the configuration is a [*fielderror.Error], so that
// the caller can say by which flag the value was set.
package platform
