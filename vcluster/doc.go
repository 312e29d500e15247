// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vcluster runs one space's control plane inside this process: an
// upstream Kubernetes API server (core, API extensions and aggregator) on the
// space's own store, with the space's own CA and
// service-account keys, and a chosen set of upstream controllers.
//
// It is called by shard, for spaces, and by host, for the embedded host
// cluster. It opens no port: callers serve [ControlPlane.Handler], and use
// [ControlPlane.Loopback] themselves. Many control planes live in one process;
// what they share is process-wide in Kubernetes itself and set once, by package
// process.
//
// This package configures upstream's servers, chains them, starts them and stops
// them. What they are given is in packages below: bootstrap, controllers,
// credentials, loopback, openapi, plugins, podaccess, requests and storage, and
// in what these call.
//
// It never looks at the shape of host objects, never reads flags, handles
// signals or ends the process, and never shows a tenant this machine's name or
// addresses.
package vcluster
