// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podaccess is how an API server reaches what its objects name: pods where they run, for logs, exec, port
// forwarding, and the proxies of pods and services; and for webhooks and API services, which are pods then. Without
// [Pods], all of these are reached by a function, or not at all.
//
// It is called by vcluster. It never dials an address itself.
package podaccess
