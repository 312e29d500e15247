// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage syncs volume claims to the host, the volumes that they are bound to into the space, and volume snapshots.
package storage
