// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote is the database of a store in a server, such as PostgreSQL: its tables, who may write to them, and what
// becomes of a lost connection. A [Dialect] has what differs between servers; the packages postgres and mysql make one.
//
// kine's engine runs on it. Only one process writes to a database at a time, because each process that opens it takes it over
// (see [Database.Open]).
package remote
