// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission holds the plugins that a space's API server runs besides
// upstream's, a file each. They reject a request where the tenant would
// otherwise learn only from an event that the host rejects it: the rules themselves
// are in package translate, which the syncer applies again.
//
// Shards put the plugins into the control plane's configuration. A plugin must
// be safe for concurrent use and keeps no state of its own.
package admission
