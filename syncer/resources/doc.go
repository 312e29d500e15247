// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resources describes what is synced between a space and its host, a [Resource] for each: its direction, its sync option, its
// type, which of the host's objects are watched, and what is rewritten on the way.
//
// From these descriptions follow the sync options, which the platform parses from the configuration; the host's watches and clients
// (syncer/hostcache); the rights of spaces' accounts (isolation) and of Berth's own (charts); and the table of
// docs/reference/sync.md. What is done about each resource is in packages pods, services, storage, and classes beside this one.
//
// To add a resource, describe it in table.go, write its translation (translate) and what it declares to the engine, and name the fields
// that Berth writes of it (isolation/hostpolicy). Tests tell what is missing. Then run `make generate`.
//
// It has no client, and holds no object but an empty one of each type.
package resources
