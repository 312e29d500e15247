// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostcache holds what the watches of the host show, once for all spaces of a process.
//
//   - host.go, watches.go: [Host] starts the watches, and hands out clients. [Get], [Find], and [Of] read what they show.
//   - router.go, hostcache.go: a [Router] hands each event to the one space that the object concerns; its [Cache] holds objects.
//   - digest.go, pack.go, quotas.go: what is left of an object, so that it takes little memory.
//   - sleepers.go, nodes.go: who is told of a change while a space sleeps.
//   - directory.go, nodeaddresses.go, claims.go, objects.go: indexes: whose address, whose host name, how many objects.
//   - imported.go, extensions.go, stale.go: which classes spaces import, which definitions they get, and what is left of
//     resources that were disabled.
//
// It writes nothing to the host, and knows no virtual object.
package hostcache
