// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
)

const (
	useSQL = `INSERT INTO use VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ` + addUse
	addUse = `ON CONFLICT DO UPDATE SET received = received + excluded.received, sent = sent + excluded.sent,
		latency = latency + excluded.latency, timed = timed + excluded.timed, sampled = sampled + excluded.sampled,
		cpu = cpu + excluded.cpu, memory = memory + excluded.memory, storage = storage + excluded.storage,
		pods = pods + excluded.pods, store = store + excluded.store, counted = counted + excluded.counted, objects = objects + excluded.objects`
	requestsSQL = `INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?) ` + addRequests
	addRequests = `ON CONFLICT DO UPDATE SET count = count + excluded.count`
)

// write writes a batch, unless it is written already: a commit may have succeeded although it returned an error.
func (s *Store) write(ctx context.Context, b *batch) error {
	if b.number == 0 {
		b.number = s.next
		s.next++
	}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		var flushed int64
		if err := tx.QueryRowContext(ctx, "SELECT flushed FROM state").Scan(&flushed); err != nil {
			return err
		}
		if flushed >= b.number {
			return nil
		}
		return b.write(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("write records of use %s: %w", s.path, err)
	}
	return nil
}

func (b *batch) write(ctx context.Context, tx *sql.Tx) error {
	w := writer{tx: tx, rows: map[key]int{}}
	defer w.close()
	for _, prepare := range []struct {
		to  **sql.Stmt
		sql string
	}{
		{&w.use, useSQL},
		{&w.requests, requestsSQL},
		{&w.found, "SELECT EXISTS (SELECT 1 FROM use WHERE start = ? AND length = ? AND tenant = ? AND space = ?)"},
		{&w.count, "SELECT COUNT(*) FROM use WHERE start = ? AND length = ? AND tenant = ?"},
	} {
		var err error
		if *prepare.to, err = tx.PrepareContext(ctx, prepare.sql); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(b.counts), compareKeys) {
		if err := w.add(ctx, k, b.counts[k]); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM last"); err != nil {
		return err
	}
	for space, objects := range b.objects {
		if _, err := tx.ExecContext(ctx, "INSERT INTO last VALUES (?, ?)", space, objects); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "UPDATE state SET flushed = ?", b.number)
	return err
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.space, b.space))
}

// writer writes the counts of one batch.
type writer struct {
	tx                          *sql.Tx
	use, requests, found, count *sql.Stmt
	rows                        map[key]int // by hour and tenant
}

func (w *writer) close() {
	for _, statement := range []*sql.Stmt{w.use, w.requests, w.found, w.count} {
		if statement != nil {
			_ = statement.Close()
		}
	}
}

// add adds counts to the record of a space, or to that of [Others] if the tenant has too many.
func (w *writer) add(ctx context.Context, k key, c *counts) error {
	space, err := w.place(ctx, k)
	if err != nil {
		return err
	}
	if _, err := w.use.ExecContext(ctx, k.hour, hour, k.tenant, space, c.received, c.sent, c.latency, c.timed,
		c.sampled, c.cpu, c.memory, c.storage, c.pods, c.store, c.counted, c.objects); err != nil {
		return err
	}
	for call, n := range c.calls {
		if _, err := w.requests.ExecContext(ctx, k.hour, hour, k.tenant, space, call.verb, call.code, n); err != nil {
			return err
		}
	}
	return nil
}

// place returns the space under which counts are recorded.
func (w *writer) place(ctx context.Context, k key) (space string, err error) {
	if k.space == Others {
		return Others, nil
	}
	var found bool
	if err := w.found.QueryRowContext(ctx, k.hour, hour, k.tenant, k.space).Scan(&found); err != nil || found {
		return k.space, err
	}
	group := key{hour: k.hour, tenant: k.tenant}
	rows, known := w.rows[group]
	if !known {
		if err := w.count.QueryRowContext(ctx, k.hour, hour, k.tenant).Scan(&rows); err != nil {
			return "", err
		}
	}
	if rows >= MaxSpaces {
		w.rows[group] = rows
		return Others, nil
	}
	w.rows[group] = rows + 1
	return k.space, nil
}
