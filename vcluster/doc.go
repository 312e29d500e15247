// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vcluster runs one space's control plane in this process: an upstream Kubernetes API server (core, API
// extensions, and aggregator) on the space's own store, with the space's own CA and service-account keys, and a
// selected set of upstream controllers.
//
// Package shard calls it for spaces, and package host for the embedded host cluster. It opens no port: callers serve
// [ControlPlane.Handler], and use [ControlPlane.Loopback] themselves. Many control planes run in one process. What they
// share is process-wide in Kubernetes itself, and package process sets it once.
//
// This package configures, chains, starts, and stops upstream's servers. The packages below contain what they need:
// bootstrap, controllers, credentials, loopback, openapi, overlay, plugins, podaccess, requests, and storage, and the
// packages that these call.
//
// It does not depend on the shape of host objects, reads no flags, handles no signals, does not end the process, and
// never shows a tenant the name or the addresses of this machine.
package vcluster
