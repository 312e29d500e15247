// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metering records what each tenant and each of its spaces uses: requests, bytes, CPU, memory, storage, and objects. `berth up`
// and `berth serve` make one [Recorder], which the gateway calls for each request. The recorder also samples what spaces use of the host.
// `berth usage --since` reads the records.
//
// Records are in one SQLite file, by hour, tenant, and space, and after some weeks by day. What is counted is in memory until the next
// flush, which is one transaction. A crash loses what was counted since the last flush, and nothing is counted twice: each flush has a
// number, which the same transaction writes.
//
// A tenant can't grow the file without limit: its spaces beyond [MaxSpaces] in an hour share one row, and verbs and status codes are
// those of fixed lists.
//
// The package sends no request, reads no store of a space, and decides nothing: nobody is limited by what is recorded.
package metering
