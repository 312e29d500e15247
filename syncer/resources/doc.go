// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resources describes what is synced between a space and its host. Each [Resource] has its direction, its sync
// option, its type, which of the host's objects are watched, and what is changed on the way.
//
// Other parts of Berth follow from these descriptions: the sync options, which the platform parses from the
// configuration; the watches and clients of the host (syncer/hostcache); the rights of spaces' accounts (isolation) and
// of Berth's own (charts); and the table in docs/reference/sync.md. The packages pods, services, storage, and classes
// contain what is done for each resource.
//
// To add a resource, describe it in table.go, write its translation (translate) and its declaration to the engine, and
// list the fields that Berth writes (isolation/hostpolicy). Tests fail for what is missing. Then run `make generate`.
//
// The package has no client, and no objects except one empty object of each type.
package resources
