// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package custom syncs the custom resources that ResourceSyncs declare (C6): objects of tenants to the host (tohost.go), Secrets that return
// for them (returned.go), and objects of the host to spaces (fromhost.go). What is copied of an object is decided by package declaration.
package custom
