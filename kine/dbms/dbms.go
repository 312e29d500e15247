// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dbms has what the databases of stores have in common: how their errors are classified, whom a database belongs to, and
// what a statement runs on.
//
// kine uses it, and the packages that open databases for it: sqlite, postgres and mysql. It knows no database.
package dbms

import (
	"context"
	"database/sql"
	"errors"
)

// Fault is what an error of a database means for a store.
type Fault int

const (
	// None means that the error is not one of the database.
	None Fault = iota
	// Failed means that the database rejected a statement, for a reason that is none of the following.
	Failed
	// Interrupted means that the statement was canceled.
	Interrupted
	// Full means that the disk of the database has no space.
	Full
	// Damaged means that data is damaged. Nothing may be served.
	Damaged
	// Unconfirmed means that the disk failed to confirm a write. What is on it is only known when the store is opened again.
	Unconfirmed
	// Busy means that another process has the database locked.
	Busy
	// Lost means that the connection was lost, or that the database doesn't respond. A commit may or may not have taken effect.
	Lost
	// Fenced means that another process has opened the store. It is fatal for this one.
	Fenced
	// TooLarge means that a key or a value is longer than the database can store.
	TooLarge
)

// Querier is a connection or a transaction.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// MaxReaders is how many reads of a store run at once.
const MaxReaders = 4

// ErrFenced means that another process, or another Store of this one, has opened the store, and that this one may not write any
// more.
var ErrFenced = errors.New("another process has opened the store")
