// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// connector opens sessions, and checks for each one that the database has not been taken over.
type connector struct {
	driver.Connector
	database *Database
	writes   bool
	setup    []string
}

func (d *Database) connector(writes bool) (driver.Connector, error) {
	base, err := d.dialect.Connector(writes)
	if err != nil {
		return nil, err
	}
	c := connector{Connector: base, database: d, writes: writes, setup: d.dialect.Setup}
	if !writes {
		c.setup = append(c.setup[:len(c.setup):len(c.setup)], d.dialect.ReadOnly...)
	}
	return c, nil
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c connector) prepare(ctx context.Context, conn driver.Conn) error {
	for _, statement := range c.setup {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("prepare a connection: %w", err)
		}
	}
	if c.writes {
		session, err := number(ctx, conn, c.database.dialect.Session)
		if err != nil {
			return err
		}
		c.database.session.Store(session)
	}
	if c.database.epoch.Load() == 0 {
		return nil
	}
	epoch, err := number(ctx, conn, c.database.statement.epoch)
	if err != nil {
		return err
	}
	return c.database.checkEpoch(epoch)
}

// number returns the number that a statement selects.
func number(ctx context.Context, conn driver.Conn, statement string) (int64, error) {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, statement, nil)
	if err != nil {
		return 0, err
	}
	values := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(values), rows.Close()); err != nil {
		return 0, fmt.Errorf("%s: %w", statement, err)
	}
	n, ok := values[0].(int64)
	if !ok {
		return 0, fmt.Errorf("%s: the result is a %T", statement, values[0])
	}
	return n, nil
}
