// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// takeovers is how often a takeover is tried, after takeoverPause the first time, and after more of it each time.
	takeovers     = 10
	takeoverPause = 50 * time.Millisecond
)

// takeOver makes this process the one that writes. It ends sessions before it waits for their locks, so that a process that is
// stopped in the middle of a transaction doesn't prevent it, and again afterwards, so that the connections of the earlier
// process read no more.
func (d *Database) takeOver(ctx context.Context) error {
	if err := d.createOwner(ctx); err != nil {
		return err
	}
	if err := d.checkExpected(ctx); err != nil { // before it disturbs the process that has it
		return err
	}
	for attempt := 1; ; attempt++ {
		err := d.endOthers(ctx)
		if err == nil {
			err = d.advanceEpoch(ctx)
		}
		if err == nil {
			err = d.endOthers(ctx)
		}
		// Two processes that take over at the same time end each other's sessions.
		if fault := d.Fault(err); err == nil || fault != dbms.Busy && fault != dbms.Lost || attempt == takeovers {
			return err
		}
		select {
		case <-time.After(time.Duration(attempt) * takeoverPause):
		case <-ctx.Done():
			return err
		}
	}
}

// createOwner creates the table with the owner, if the database has no tables of a store yet. It fails if they are those of
// something else, whose sessions are not disturbed.
func (d *Database) createOwner(ctx context.Context) error {
	var reason string
	if err := d.writer.QueryRowContext(ctx, d.dialect.Check).Scan(&reason); err != nil {
		return err
	}
	if reason != "" {
		return fmt.Errorf("the database can't have a store: %s", reason)
	}
	if _, err := d.writer.ExecContext(ctx, d.dialect.Schema[0]); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if owned, err := owned(ctx, d.writer, d.owner); err != nil || owned {
		return err
	}
	var tables int
	if err := d.writer.QueryRowContext(ctx, d.dialect.TableExists).Scan(&tables); err != nil {
		return err
	}
	if tables > 0 {
		return fmt.Errorf("%w: its table kine is of another program; use a database of its own for each space", sqlite.ErrNotStore)
	}
	_, err := d.writer.ExecContext(ctx, d.Adapt("INSERT INTO berth_owner (one, space, id, epoch) VALUES (1, ?, ?, 0)"), d.owner.Space, d.owner.ID)
	if owned, ownedErr := owned(ctx, d.writer, d.owner); ownedErr != nil || owned { // perhaps by another process, which was faster
		return ownedErr
	}
	return err
}

// owned reports whether the database has an owner. It fails if that is another space.
func owned(ctx context.Context, q dbms.Querier, by dbms.Owner) (bool, error) {
	var owner dbms.Owner
	// Somebody else may have written the table. Longer values are of no space.
	err := q.QueryRowContext(ctx, "SELECT SUBSTRING(space, 1, 300), SUBSTRING(id, 1, 300) FROM berth_owner WHERE one = 1").Scan(&owner.Space, &owner.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = owner.CheckIs(by)
	}
	return true, err
}

func (d *Database) advanceEpoch(ctx context.Context) error {
	tx, err := d.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	epoch, err := readEpoch(tx.QueryRowContext(ctx, d.statement.epoch+" FOR UPDATE"))
	if err != nil {
		return err
	}
	if err := d.isExpected(epoch); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.Adapt("UPDATE berth_owner SET epoch = ? WHERE one = 1"), epoch+1); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	d.epoch.Store(epoch + 1)
	return nil
}

func (d *Database) checkExpected(ctx context.Context) error {
	if d.expected == nil {
		return nil
	}
	epoch, err := readEpoch(d.writer.QueryRowContext(ctx, d.statement.epoch))
	if err != nil {
		return err
	}
	return d.isExpected(epoch)
}

// readEpoch reads the epoch of a row. Somebody else may have written it, and an error of Scan would quote all of it.
func readEpoch(row *sql.Row) (int64, error) {
	var text []byte
	if err := row.Scan(&text); err != nil {
		return 0, err
	}
	epoch, err := strconv.ParseInt(string(text[:min(len(text), 20)]), 10, 64)
	if err != nil || len(text) > 20 {
		return 0, fmt.Errorf("%w: its epoch is not a number", sqlite.ErrDamaged)
	}
	return epoch, nil
}

// isExpected fails if another process has taken the database over since the epoch was read that Open expects.
func (d *Database) isExpected(epoch int64) error {
	if d.expected == nil || epoch == *d.expected || epoch == d.epoch.Load() { // the last one after a takeover that is repeated
		return nil
	}
	return fmt.Errorf("%w: its epoch in %s is %d, and was %d before this process opened it", dbms.ErrFenced, d, epoch, *d.expected)
}

func (d *Database) endOthers(ctx context.Context) error {
	return d.end(ctx, func(int64) bool { return true })
}

// end ends those of the other sessions of the role in the database that which selects.
func (d *Database) end(ctx context.Context, which func(session int64) bool) error {
	rows, err := d.writer.QueryContext(ctx, d.dialect.Others)
	if err != nil {
		return err
	}
	var sessions []int64
	for rows.Next() {
		var session int64
		if err := rows.Scan(&session); err != nil {
			return errors.Join(err, rows.Close())
		}
		if which(session) {
			sessions = append(sessions, session)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, session := range sessions {
		// A session that has ended by itself in the meantime is an error in some servers.
		if _, err := d.writer.ExecContext(ctx, fmt.Sprintf(d.dialect.End, session)); err != nil && d.Fault(err) != dbms.Failed {
			return err
		}
	}
	return nil
}

func (d *Database) checkEpoch(epoch int64) error {
	if own := d.epoch.Load(); epoch != own {
		return fmt.Errorf("%w: its epoch in %s is %d, and was %d when this process opened it", dbms.ErrFenced, d, epoch, own)
	}
	return nil
}

// Begin starts a transaction that writes. Until it ends, nobody can take the database over.
func (d *Database) Begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	return d.begin(ctx, conn, d.dialect.Share)
}

func (d *Database) begin(ctx context.Context, conn *sql.Conn, lock string) (*sql.Tx, error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	var epoch int64
	err = tx.QueryRowContext(ctx, d.statement.epoch+" "+lock).Scan(&epoch)
	if err == nil {
		err = d.checkEpoch(epoch)
	}
	if err != nil {
		_ = tx.Rollback() // the first error is the one to return
		return nil, err
	}
	return tx, nil
}

// Recover connects again, ends the earlier session of this process, and waits until its transaction has ended.
func (d *Database) Recover(ctx context.Context) (last int64, err error) {
	earlier := d.session.Load()
	d.writer.SetMaxIdleConns(0)
	d.writer.SetMaxIdleConns(1)
	if err := d.writer.PingContext(ctx); err != nil {
		return 0, err
	}
	if err := d.end(ctx, func(session int64) bool { return session == earlier }); err != nil {
		return 0, err
	}
	conn, err := d.writer.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	// An earlier transaction has a lock on this row until it has committed or not.
	tx, err := d.begin(ctx, conn, "FOR UPDATE")
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM kine").Scan(&last)
	return last, err
}
