// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Record is what a space used in a period.
type Record struct {
	// Tenant is empty if the space has none. Space is [Others] for all that have no record of their own.
	Tenant string `json:"tenant"`
	Space  string `json:"space"`
	// From and Until limit the period.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// MeasuredHours is for how much of the period it is known what the space used of the host.
	MeasuredHours float64 `json:"measuredHours"`

	// CPUHours are cores that pods requested, multiplied by hours. Memory and Storage are the same in GiB.
	CPUHours        float64 `json:"cpuHours"`
	MemoryGiBHours  float64 `json:"memoryGiBHours"`
	StorageGiBHours float64 `json:"storageGiBHours"`
	PodHours        float64 `json:"podHours"`
	// ObjectHours are objects in the space multiplied by hours, and Objects is the average while the number was known.
	ObjectHours float64 `json:"objectHours"`
	Objects     float64 `json:"objects"`
	// StoreGiBHours is of the space's own store.
	StoreGiBHours float64 `json:"storeGiBHours"`

	Requests      int64 `json:"requests"`
	ReceivedBytes int64 `json:"receivedBytes"`
	SentBytes     int64 `json:"sentBytes"`
	// TimedRequests are all but watches and streams, and RequestSeconds is their time together.
	TimedRequests  int64   `json:"timedRequests"`
	RequestSeconds float64 `json:"requestSeconds"`
	// Calls are the requests by verb and status code.
	Calls []Call `json:"calls"`
}

// Call is how many requests had a verb and a status code; the code is 0 if the response was cut off.
type Call struct {
	Verb  string `json:"verb"`
	Code  int    `json:"code"`
	Count int64  `json:"count"`
}

// Query says which records to read.
type Query struct {
	Since, Until time.Time
	// Tenants are those to read; all if it is empty.
	Tenants []string
}

// period returns the whole hours of a query, or days if the records are by day. It does not end after now.
func (q Query) period(now time.Time) (from, until time.Time) {
	since := q.Since.Unix()
	start := since - mod(since, hour)
	if start < hoursSince(now) {
		start = since - mod(since, day)
	}
	end := q.Until.Unix()
	length := hour
	if end <= hoursSince(now) {
		length = day
	}
	until = time.Unix(end+mod(-end, length), 0)
	if until.After(now) {
		until = now
	}
	return time.Unix(start, 0).UTC(), until.UTC().Truncate(time.Second)
}

// Records returns what was recorded, by tenant and space. What was counted since the last flush isn't included.
func (s *Store) Records(ctx context.Context, q Query, now time.Time) ([]Record, error) {
	from, until := q.period(now)
	where := " WHERE start >= ? AND start < ?"
	args := []any{from.Unix(), until.Unix()}
	if len(q.Tenants) > 0 {
		where += " AND tenant IN (?" + strings.Repeat(", ?", len(q.Tenants)-1) + ")"
		for _, tenant := range q.Tenants {
			args = append(args, tenant)
		}
	}
	records := []Record{}
	err := s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT tenant, space, SUM(received), SUM(sent), SUM(latency), SUM(timed), SUM(sampled), SUM(cpu),
			SUM(memory), SUM(storage), SUM(pods), SUM(store), SUM(counted), SUM(objects) FROM use`+where+" GROUP BY tenant, space ORDER BY tenant, space", args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r Record
			var c counts
			if err := rows.Scan(&r.Tenant, &r.Space, &c.received, &c.sent, &c.latency, &c.timed, &c.sampled, &c.cpu,
				&c.memory, &c.storage, &c.pods, &c.store, &c.counted, &c.objects); err != nil {
				return err
			}
			r.From, r.Until = from, until
			r.set(&c)
			records = append(records, r)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return readCalls(ctx, tx, where, args, records)
	})
	if err != nil {
		return nil, fmt.Errorf("read records of use %s: %w", s.path, err)
	}
	return records, nil
}

// set converts what was counted to the units of a record.
func (r *Record) set(c *counts) {
	const hours, gibHours = 3600, 3600 * (1 << 30)
	r.MeasuredHours, r.CPUHours, r.PodHours = c.sampled/hours, c.cpu/hours, c.pods/hours
	r.MemoryGiBHours, r.StorageGiBHours, r.StoreGiBHours = c.memory/gibHours, c.storage/gibHours, c.store/gibHours
	r.ObjectHours = c.objects / hours
	if c.counted > 0 {
		r.Objects = c.objects / c.counted
	}
	r.ReceivedBytes, r.SentBytes = c.received, c.sent
	r.TimedRequests, r.RequestSeconds = c.timed, float64(c.latency)/1e6
	r.Calls = []Call{}
}

// readCalls adds the requests to records, which are in the order of the query.
func readCalls(ctx context.Context, tx *sql.Tx, where string, args []any, records []Record) error {
	rows, err := tx.QueryContext(ctx, "SELECT tenant, space, verb, code, SUM(count) FROM requests"+where+
		" GROUP BY tenant, space, verb, code ORDER BY tenant, space, verb, code", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for i := 0; rows.Next(); {
		var tenant, space string
		var c Call
		if err := rows.Scan(&tenant, &space, &c.Verb, &c.Code, &c.Count); err != nil {
			return err
		}
		for i < len(records) && (records[i].Tenant != tenant || records[i].Space != space) {
			i++
		}
		if i == len(records) {
			return fmt.Errorf("the requests of space %s have no record", space) // both are written together
		}
		records[i].Requests += c.Count
		records[i].Calls = append(records[i].Calls, c)
	}
	return rows.Err()
}

// read runs a transaction that sees one state of the file.
func (s *Store) read(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return do(tx)
}
