// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

const (
	// keepHours is how many days there are records by hour, and keepDays by day.
	keepHours, keepDays = 35, 400
)

// hoursSince returns when the records by hour begin. Those before are by day.
func hoursSince(now time.Time) int64 {
	at := now.Unix() - keepHours*day
	return at - mod(at, day)
}

// rollUp makes records by day of the records by hour that are old enough, and deletes those that nobody needs any more. In a day, as in an
// hour, a tenant has [MaxSpaces] spaces of its own: those that existed longest.
func (s *Store) rollUp(ctx context.Context, now time.Time) error {
	before := hoursSince(now)
	err := s.transact(ctx, func(tx *sql.Tx) error {
		for _, statement := range []struct {
			sql  string
			args []any
		}{
			{`CREATE TEMP TABLE IF NOT EXISTS kept (start INTEGER, tenant TEXT, space TEXT, PRIMARY KEY (start, tenant, space)) WITHOUT ROWID`, nil},
			{`DELETE FROM kept`, nil},
			{`INSERT INTO kept SELECT start, tenant, space FROM (
				SELECT start / 86400 * 86400 AS start, tenant, space,
					ROW_NUMBER() OVER (PARTITION BY start / 86400, tenant ORDER BY COUNT(*) DESC, space) AS rank
				FROM use WHERE length = 3600 AND start < ? GROUP BY start / 86400, tenant, space)
				WHERE rank <= ?`, []any{before, MaxSpaces}},
			{`INSERT INTO use SELECT u.start / 86400 * 86400, 86400, u.tenant, COALESCE(k.space, ?),
				SUM(received), SUM(sent), SUM(latency), SUM(timed), SUM(sampled), SUM(cpu), SUM(memory), SUM(storage), SUM(pods), SUM(store),
				SUM(counted), SUM(objects)
				FROM use u LEFT JOIN kept k ON k.start = u.start / 86400 * 86400 AND k.tenant = u.tenant AND k.space = u.space
				WHERE length = 3600 AND u.start < ? GROUP BY 1, 3, 4 ` + addUse, []any{Others, before}},
			{`INSERT INTO requests SELECT u.start / 86400 * 86400, 86400, u.tenant, COALESCE(k.space, ?), verb, code, SUM(count)
				FROM requests u LEFT JOIN kept k ON k.start = u.start / 86400 * 86400 AND k.tenant = u.tenant AND k.space = u.space
				WHERE length = 3600 AND u.start < ? GROUP BY 1, 3, 4, 5, 6 ` + addRequests, []any{Others, before}},
			{`DELETE FROM kept`, nil},
			{`DELETE FROM use WHERE length = 3600 AND start < ?`, []any{before}},
			{`DELETE FROM requests WHERE length = 3600 AND start < ?`, []any{before}},
			{`DELETE FROM use WHERE length = 86400 AND start < ?`, []any{now.Unix() - keepDays*day}},
			{`DELETE FROM requests WHERE length = 86400 AND start < ?`, []any{now.Unix() - keepDays*day}},
		} {
			if _, err := tx.ExecContext(ctx, statement.sql, statement.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("roll up records of use %s: %w", s.path, err)
	}
	return nil
}
