// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcache holds what the watches of the host show, once for all spaces of a process: a [Cache] of objects, which are
// packed and have digests in place of data that no space needs, and a [Router], which hands each event to the one space that
// the object concerns.
//
// It is called by the syncer, which tells it which space an object is of. It writes nothing to the host.
package hostcache
