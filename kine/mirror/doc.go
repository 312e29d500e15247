// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mirror is the database of a store in a server that has keys and values, such as etcd: a [Log] has the current row of
// each key, and a SQLite file beside the space is a cache of it, on which kine's engine runs.
//
// A group of writes is in the log before it is in the cache, and is acknowledged after that. The constraints of the cache find
// conflicts, because only one process writes to a log at a time: each takes it over (see [Database.Open]). The cache also has the
// recent history, for watches. It may be lost at any time: what the log has makes a new one, without the history.
//
// The packages etcd, nats, and s3 make a Log.
package mirror
