// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/kine/dbms"
)

// Row is a change of a key, or its current version.
type Row struct {
	Revision int64
	Key      string
	// Deleted means that the change deletes the key. A current version is never deleted.
	Deleted bool
	// CreateRevision is the revision at which the key was created.
	CreateRevision int64
	// Lease is when the key expires, in seconds since 1970; 0 means never.
	Lease int64
	Value []byte
}

// State is what a log says of itself.
type State struct {
	Owner dbms.Owner
	// Epoch is how often the log was taken over.
	Epoch int64
	// Generation is how often the content was replaced.
	Generation int64
	// Revision is that of the last change.
	Revision int64
}

// Log keeps the rows of a store in a server. It is safe for concurrent use.
//
// An error of the server is one for which Fault is not [dbms.None]. A change is Lost if it may or may not have taken effect, or
// if it is part of an Append that has taken effect up to a change before it. All later changes are Lost then, until Reconnect.
type Log interface {
	// String names the log in messages, without a password.
	String() string
	// Fault classifies an error of the server.
	Fault(err error) dbms.Fault
	// CheckSize fails with an ErrTooLarge if a row is too large.
	CheckSize(r *Row) error

	// State returns the state, or the zero State if the log has nothing. It fails with an [dbms.ErrOtherSpace] if another space
	// has the log. Before a takeover, it needs no other method.
	State(ctx context.Context) (State, error)
	// Epoch returns the epoch of the state.
	Epoch(ctx context.Context) (int64, error)
	// TakeOver makes this process the one that writes, and returns the state before. It fails with a [dbms.ErrFenced] if expected
	// is another epoch than that before.
	TakeOver(ctx context.Context, expected *int64) (before State, err error)
	// Reconnect makes sure that no change of an earlier connection can take effect any more, and returns the state. It fails with
	// a [dbms.ErrFenced] if another process has taken the log over, as do the methods that write.
	Reconnect(ctx context.Context) (State, error)

	// Append writes changes, which are durable when it returns. Each takes effect as a whole, and after those before it.
	Append(ctx context.Context, rows []Row) error
	// Advance increases the revision of the state.
	Advance(ctx context.Context, revision int64) error
	// Replace replaces all rows by those that write passes to put. After an error, the log has either the old rows or the new
	// ones.
	Replace(ctx context.Context, revision int64, write func(put func(Row) error) error) error
	// Rows passes the current rows, all of one moment, and returns the state of this moment. Before the current row of a key, it
	// may pass earlier ones, and deletions. If pass fails, the error is returned.
	Rows(ctx context.Context, pass func(Row) error) (State, error)
	// Files returns the saved files, and the state.
	Files(ctx context.Context) (dbms.Files, State, error)
	// SaveFiles replaces the saved files.
	SaveFiles(ctx context.Context, data map[string][]byte) error
	// Drop deletes everything.
	Drop(ctx context.Context) error

	// Release closes connections until the next use.
	Release() error
	// Close closes connections.
	Close() error
}

// Compacter is a Log that keeps changes until it is given all rows.
type Compacter interface {
	// Compact returns work that is due; nil if there is none. The caller has all rows up to the last Append. rows passes these to put,
	// or for any key a later one. The work may take long, and writes may be made meanwhile. If it fails, it is due again
	// after more writes.
	Compact() (work func(ctx context.Context, rows func(put func(Row) error) error) error)
}

// ErrTooLarge means that a key and its value are too large for the log.
var ErrTooLarge = errors.New("the key and its value are too large for the server")
