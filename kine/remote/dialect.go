// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"database/sql/driver"
	"strings"

	"github.com/k3s-io/kine/pkg/query"

	"github.com/berth-dev/berth/kine/dbms"
)

// Dialect has what differs between database servers. In its statements, "?" is a parameter.
type Dialect struct {
	// Name names the database in logs and errors, without a password.
	Name string
	// Param is how the server's language begins a parameter; Numbered says that its number follows.
	Param    string
	Numbered bool
	// Connector returns a connector of sessions that write, or that only read.
	Connector func(writes bool) (driver.Connector, error)
	// Setup are statements for a new connection. ReadOnly makes a connection unable to write.
	Setup, ReadOnly []string
	// TableExists returns a number above 0 if kine's table exists.
	TableExists string
	// HasTable returns a number above 0 if the table of the parameter exists.
	HasTable string
	// Schema creates the owner's table first, and then kine's, if they are missing.
	Schema []string
	// Check returns a text that says why the database can't be used, or "" if it can.
	Check string
	// Insert appends a row with the parameters id, name, created, deleted, create_revision, prev_revision, lease, value, and
	// again prev_revision. It affects no row if its key has another version, or returns an error for which Exists is true.
	Insert string
	Exists func(error) bool
	// Share locks the rows of a query against changes until the end of a transaction.
	Share string
	// In is the condition that the id of a row is in the result of a query, which replaces %s. The server must find the rows by
	// the primary key, whatever it knows of the table.
	In string
	// Compact deletes the rows of a query of ids, which replaces %s.
	Compact string
	// Session returns the number of the session. Others selects the numbers of the other sessions that Berth has opened with the
	// same role in the database. End ends the session whose number replaces %d.
	Session, Others, End string
	// StartKey returns the key with which a range starts, as far as the server can compare with it. Nil means that it can with
	// any.
	StartKey func(string) string
	// Fault classifies the server's errors.
	Fault func(error) dbms.Fault
}

// Adapt returns a statement of kine's engine in the server's language.
func (d *Dialect) Adapt(statement string) string {
	// Only SQLite has a CROSS JOIN with a condition. It fixes the order of the tables.
	statement = strings.Replace(statement, "CROSS JOIN", "INNER JOIN", 1)
	return query.New(statement, d.Param, d.Numbered, "").Query
}
