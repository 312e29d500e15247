// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package postgres has what is special about PostgreSQL as the database of a store: connections, SQL, and the classes of
// errors. Package remote does the rest.
package postgres

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/remote"
)

// errDSN has no cause, which could contain the password.
var errDSN = errors.New("it is not the DSN of a PostgreSQL database, such as postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full")

// keptStatements is how many prepared statements a connection keeps in the server.
const keptStatements = 64

// schema is kine's table, with the indexes that its queries use. Keys are compared as bytes.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS berth_owner (one INTEGER PRIMARY KEY CHECK (one = 1), space TEXT NOT NULL, id TEXT NOT NULL, epoch BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS berth_files (name TEXT PRIMARY KEY, data BYTEA NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS kine (
		id BIGINT PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, created SMALLINT NOT NULL, deleted SMALLINT NOT NULL,
		create_revision BIGINT NOT NULL, prev_revision BIGINT NOT NULL, lease BIGINT NOT NULL, value BYTEA, old_value BYTEA)`,
	`CREATE INDEX IF NOT EXISTS kine_name_id_index ON kine (name, id)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
	`CREATE INDEX IF NOT EXISTS kine_lease_index ON kine (lease, id) WHERE lease > 0`,
}

// New returns the dialect for the database of a DSN, which is a URL or has the form "host=… user=…". If ca is not empty, it has
// certificates in PEM, with one of which the server must prove who it is.
func New(dsn string, ca []byte) (*remote.Dialect, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errDSN
	}
	if err := trust(config, ca); err != nil {
		return nil, err
	}
	config.ConnectTimeout = remote.ConnectTimeout
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = keptStatements, 0
	return &remote.Dialect{
		Name:  fmt.Sprintf("PostgreSQL database %q at %s", config.Database, address(config)),
		Param: "$", Numbered: true,
		Connector: func(writes bool) (driver.Connector, error) { return connector(config, writes), nil },
		Setup: []string{
			// A commit is on disk before it is acknowledged (D1). Stronger settings stay.
			"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
		},
		TableExists: "SELECT COUNT(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('kine')",
		HasTable:    "SELECT COUNT(*) FROM pg_catalog.pg_class WHERE oid = to_regclass(?)",
		Schema:      schema,
		Check: `SELECT CASE WHEN current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII')
			THEN 'its encoding is ' || current_setting('server_encoding') || '; create it with ENCODING ''UTF8''' ELSE '' END`,
		Insert: `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value, old_value)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM kine WHERE id = ?)) ON CONFLICT (name, prev_revision) DO NOTHING`,
		Exists:   func(error) bool { return false }, // an error would end the transaction
		Share:    "FOR SHARE",
		In:       in,
		Compact:  "DELETE FROM kine WHERE id <= ? AND " + in,
		Session:  "SELECT pg_backend_pid()::BIGINT",
		Others:   sessions,
		End:      "SELECT pg_terminate_backend(%d)",
		StartKey: startKey,
		Fault:    fault,
	}, nil
}

// sessions selects the other sessions of the role in the database, by the names that connector gives them.
const sessions = `SELECT pid FROM pg_catalog.pg_stat_activity
	WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() AND application_name IN ('berth writer', 'berth reader')`

// in makes the server look up each row by its key. It would read the whole table for a subquery of which it has no statistics.
const in = "id = ANY(ARRAY(%s))"

// connector returns a connector with the settings of a session.
func connector(config *pgx.ConnConfig, writes bool) driver.Connector {
	c := config.Copy()
	milliseconds := func(n int64) string { return strconv.FormatInt(n, 10) }
	c.RuntimeParams["application_name"] = "berth reader"
	c.RuntimeParams["default_transaction_read_only"] = "on"
	if writes {
		c.RuntimeParams["application_name"] = "berth writer"
		c.RuntimeParams["default_transaction_read_only"] = "off"
	}
	c.RuntimeParams["default_transaction_isolation"] = "read committed"
	c.RuntimeParams["lock_timeout"] = milliseconds(remote.LockTimeout.Milliseconds())
	c.RuntimeParams["statement_timeout"] = milliseconds(remote.StatementTimeout.Milliseconds())
	c.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(remote.StatementTimeout.Milliseconds())
	c.RuntimeParams["client_encoding"] = "UTF8"
	// A tenant who has the role of the space can make the server send anything, also as an error.
	c.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		frontend := pgproto3.NewFrontend(r, w)
		frontend.SetMaxBodyLen(remote.MaxMessage)
		return frontend
	}
	return stdlib.GetConnector(*c)
}

// trust makes the certificates in ca the only ones that are trusted, and connections without TLS impossible.
func trust(config *pgx.ConnConfig, ca []byte) error {
	if len(ca) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt has no certificate in PEM")
	}
	verified := func(host string) *tls.Config {
		return &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS12}
	}
	if config.TLSConfig != nil {
		certificates := config.TLSConfig.Certificates
		config.TLSConfig = verified(config.Host)
		config.TLSConfig.Certificates = certificates
	} else {
		config.TLSConfig = verified(config.Host)
	}
	var fallbacks []*pgconn.FallbackConfig
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			fallbacks = append(fallbacks, &pgconn.FallbackConfig{Host: f.Host, Port: f.Port, TLSConfig: verified(f.Host)})
		}
	}
	config.Fallbacks = fallbacks
	return nil
}

// startKey replaces the zero byte at the end of the key with which the next page of a list starts. A text can't have one, so that
// no key is in between.
func startKey(key string) string {
	if before, ok := strings.CutSuffix(key, "\x00"); ok {
		return before + "\x01"
	}
	return key
}

func address(config *pgx.ConnConfig) string {
	return config.Host + ":" + strconv.Itoa(int(config.Port))
}

// class is the class of errors whose SQLSTATE begins so.
type class struct {
	begin string
	fault dbms.Fault
}

// classes are classes of errors by the beginning of SQLSTATE
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
var classes = []class{
	{"08", dbms.Lost},                    // connection
	{"28", dbms.Lost}, {"3D", dbms.Lost}, // the password is wrong, or there is no such database
	{"42501", dbms.Lost},                     // the role may not
	{"57014", dbms.Lost},                     // canceled, by a timeout
	{"57P", dbms.Lost}, {"25P03", dbms.Lost}, // the session was ended, or the server stops or starts
	{"25006", dbms.Lost},                    // the server is a read-only replica
	{"53100", dbms.Full},                    // the disk
	{"53300", dbms.Lost},                    // too many connections
	{"40", dbms.Busy}, {"55P03", dbms.Busy}, // deadlock or lock timeout
	{"XX001", dbms.Damaged}, {"XX002", dbms.Damaged},
	{"54", dbms.TooLarge}, {"22021", dbms.TooLarge}, // a key is too long for an index, or is no text
}

func fault(err error) dbms.Fault {
	var e *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &e):
		if e.Code == "23505" && e.ConstraintName == "kine_pkey" { // only another client can have written the revision
			return dbms.Lost
		}
		for _, c := range classes {
			if strings.HasPrefix(e.Code, c.begin) {
				return c.fault
			}
		}
		return dbms.Failed
	case errors.As(err, &connect), pgconn.SafeToRetry(err), pgconn.Timeout(err):
		return dbms.Lost
	}
	return dbms.None
}
