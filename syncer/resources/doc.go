// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resources is the one table of what is synced between a space and its
// host: each resource, its direction, its default, the values of its sync option,
// and what is rewritten on the way. The syncer asks it what to do, the platform parses
// the configuration with it, and docs/reference/sync.md is checked against it.
//
// It knows no object and no client.
package resources
