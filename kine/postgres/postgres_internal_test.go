// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/berth-dev/berth/kine/dbms"
)

// Most of these errors can't be had from a real server at will.
func TestErrorsHaveTheClassThatTheirCodeSays(t *testing.T) {
	state := func(code, constraint string) error {
		return fmt.Errorf("commit: %w", &pgconn.PgError{Code: code, ConstraintName: constraint})
	}
	cases := map[string]struct {
		reason string
		err    error
		want   dbms.Fault
	}{
		"DiskFull":        {"D3: writes are rejected until there is space.", state("53100", ""), dbms.Full},
		"Terminated":      {"A takeover ends sessions this way.", state("57P01", ""), dbms.Lost},
		"Starting":        {"The server is being restarted.", state("57P03", ""), dbms.Lost},
		"StatementTimer":  {"The server is too slow.", state("57014", ""), dbms.Lost},
		"ReadOnly":        {"After a failover, the address may lead to a replica.", state("25006", ""), dbms.Lost},
		"Password":        {"It was changed; the Secret follows.", state("28P01", ""), dbms.Lost},
		"Connections":     {"Others have all of them.", state("53300", ""), dbms.Lost},
		"LockTimeout":     {"A process that was taken over may hold the lock.", state("55P03", ""), dbms.Busy},
		"Revision":        {"Only another client can have written it.", state("23505", "kine_pkey"), dbms.Lost},
		"Version":         {"Insert makes no such error, so it is none of those that are expected.", state("23505", "kine_name_prev_revision_uindex"), dbms.Failed},
		"DataCorrupted":   {"Nothing may be served.", state("XX001", ""), dbms.Damaged},
		"KeyTooLong":      {"The client has to change it.", state("54000", ""), dbms.TooLarge},
		"Syntax":          {"It is a bug.", state("42601", ""), dbms.Failed},
		"NotOfTheServer":  {"It is the caller's.", errors.New("other"), dbms.None},
		"CallersContext":  {"It is the caller's.", context.Canceled, dbms.None},
		"NoPermission":    {"The admin repairs the grants.", state("42501", ""), dbms.Lost},
		"IdleTransaction": {"The process was stopped for long.", state("25P03", ""), dbms.Lost},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := fault(c.err); got != c.want {
				t.Errorf("fault(%v) = %d, want %d. %s", c.err, got, c.want, c.reason)
			}
		})
	}
}

// With a CA, no connection is without TLS or to somebody else, whatever the DSN says.
func TestHostileACAIsTheOnlyOneThatIsTrusted(t *testing.T) {
	if _, err := New("postgres://u:p@db.example/d", []byte("no certificate")); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("New = %v, want an error about ca.crt", err)
	}
}
