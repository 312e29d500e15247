// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package s3 keeps the rows of a store in object storage with the S3 protocol, as a log of objects under a prefix that is the space's
// own. kine/mirror has the rest of such a store.
//
// Under the prefix are:
//
//	store               says whose store it is, and which log it has
//	log/LOG/NUMBER      the records: changes of rows, and of the state
//	base/NAME/PART      all rows as of a record, in parts
//	files/NAME          the files of the space
//	wanted/EPOCH        says that another process wants to begin an epoch, for which a process that writes all the time pauses
//
// A record is never overwritten. A process creates the next one only if there is none (If-None-Match: *), so of several processes that
// know the same end of the log, one writes. Each record has the state after it, and names the base and the files that it needs. So
// the last record has the current state, and objects that no record names have no effect. Records that a base replaces are deleted.
//
// A takeover is a record with the next epoch. An earlier process doesn't know it, and so can't write the record after it: the number
// that it would use is that of the takeover. For that, records of takeovers are kept for days, and a process trusts what it knows
// of the end of the log for an hour only. A takeover counts only if its record is the last one when the log is read again, because
// the numbers of records that a base has replaced are free.
package s3
