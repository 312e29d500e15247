// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcache caches the host's objects, once for all spaces of a process.
//
// - host.go, watches.go: [Host] starts the watches, and creates clients. [Get], [Find], and [Of] read from the cache.
// - router.go, hostcache.go: a [Router] passes each event to the one space that the object concerns; its [Cache]
// contains the objects.
// - digest.go, pack.go, quotas.go: objects are reduced so that they take little memory.
// - own.go, ownlists.go, others.go: with several processes, each caches the objects of its own spaces, which are listed
// when they come, and of other spaces only addresses of pods and claims of host names.
// - sleepers.go, nodes.go: notifications about changes while a space sleeps.
// - directory.go, nodeaddresses.go, claims.go, objects.go: indexes, by address, by host name, and numbers of objects.
// - imported.go, extensions.go, stale.go: which classes spaces import, which definitions they get, and stale objects of
// disabled resources.
//
// It writes nothing to the host, and does not access virtual objects.
package hostcache
