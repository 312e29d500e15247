// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/berth-dev/berth/kine/dbms"
)

// Most of these errors can't be had from a real server at will.
func TestErrorsHaveTheClassThatTheirNumberSays(t *testing.T) {
	number := func(n uint16, message string) error {
		return fmt.Errorf("commit: %w", &mysql.MySQLError{Number: n, Message: message})
	}
	cases := map[string]struct {
		reason string
		err    error
		want   dbms.Fault
	}{
		"DiskFull":       {"D3: writes are rejected until there is space.", number(1021, ""), dbms.Full},
		"TableFull":      {"InnoDB reports a full disk this way.", number(1114, "The table 'kine' is full"), dbms.Full},
		"EngineDiskFull": {"The storage engine has an error of the system.", number(1030, "Got error 28 \"No space left on device\" from storage engine InnoDB"), dbms.Full},
		"Killed":         {"A takeover ends sessions this way.", number(1927, "Connection was killed"), dbms.Lost},
		"Stopping":       {"The server is being restarted.", number(1053, ""), dbms.Lost},
		"ReadOnly":       {"After a failover, the address may lead to a replica.", number(1290, ""), dbms.Lost},
		"Password":       {"It was changed; the Secret follows.", number(1045, ""), dbms.Lost},
		"LockTimeout":    {"A process that was taken over may hold the lock.", number(1205, ""), dbms.Busy},
		"Revision":       {"Only another client can have written it.", number(1062, "Duplicate entry '5' for key 'PRIMARY'"), dbms.Lost},
		"InvalidConn":    {"The connection broke.", mysql.ErrInvalidConn, dbms.Lost},
		"KeyTooLong":     {"The client has to change it.", number(1406, ""), dbms.TooLarge},
		"Syntax":         {"It is a bug.", number(1064, ""), dbms.Failed},
		"NotOfTheServer": {"It is the caller's.", errors.New("other"), dbms.None},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fault(c.err); got != c.want {
				t.Errorf("fault(%v) = %d, want %d. %s", c.err, got, c.want, c.reason)
			}
		})
	}
	if lost := number(1062, "Duplicate entry 'a-5' for key 'kine_name_prev_revision_uindex'"); !exists(lost) {
		t.Error("a lost race is not one")
	}
	if exists(number(1062, "Duplicate entry '5' for key 'kine.PRIMARY'")) {
		t.Error("a revision that exists is a lost race")
	}
}
