// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mysql has what is special about MySQL and MariaDB as the database of a store: connections, SQL, and the classes of
// errors. Package remote does the rest.
package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/remote"
)

// errDSN has no cause, which could contain the password.
var errDSN = errors.New("it is not the DSN of a MySQL database, such as USER:PASSWORD@tcp(HOST:3306)/DATABASE?tls=true")

// schema is kine's table, with the indexes that its queries use. Keys are compared as bytes. A key may have as many as fit into
// an index.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS berth_owner (one INTEGER PRIMARY KEY, space VARCHAR(255) NOT NULL, id VARCHAR(255) NOT NULL, epoch BIGINT NOT NULL)
		ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`,
	`CREATE TABLE IF NOT EXISTS berth_files (name VARBINARY(512) PRIMARY KEY, data MEDIUMBLOB NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`,
	`CREATE TABLE IF NOT EXISTS kine (
		id BIGINT PRIMARY KEY, name VARBINARY(2048) NOT NULL, created SMALLINT NOT NULL, deleted SMALLINT NOT NULL,
		create_revision BIGINT NOT NULL, prev_revision BIGINT NOT NULL, lease BIGINT NOT NULL, value MEDIUMBLOB, old_value MEDIUMBLOB,
		KEY kine_name_id_index (name, id), UNIQUE KEY kine_name_prev_revision_uindex (name, prev_revision),
		KEY kine_lease_index (lease, id)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`,
}

// sessions selects the other sessions of the user in the database.
const sessions = `SELECT ID FROM information_schema.PROCESSLIST
	WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND USER = SUBSTRING_INDEX(USER(), '@', 1)`

// New returns the dialect for the database of a DSN of github.com/go-sql-driver/mysql. If ca is not empty, it has certificates
// in PEM, with one of which the server must prove who it is.
func New(dsn string, ca []byte) (*remote.Dialect, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.DBName == "" {
		return nil, errDSN
	}
	if err := trust(config, ca); err != nil {
		return nil, err
	}
	config.Timeout, config.ReadTimeout, config.WriteTimeout = remote.ConnectTimeout, remote.StatementTimeout, remote.StatementTimeout
	config.Logger = &mysql.NopLogger{}
	// A statement is sent at once with its parameters, instead of being prepared first. The parameters are escaped as the
	// connection's character set needs it.
	config.InterpolateParams = true
	config.MultiStatements, config.AllowAllFiles, config.ClientFoundRows, config.CheckConnLiveness = false, false, false, true
	return &remote.Dialect{
		Name:      fmt.Sprintf("MySQL database %q at %s", config.DBName, config.Addr),
		Param:     "?",
		Connector: func(bool) (driver.Connector, error) { return mysql.NewConnector(config) },
		Setup: []string{
			// Without strict mode, the server would cut values that are too long.
			`SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, ` +
				fmt.Sprintf("innodb_lock_wait_timeout = %d, lock_wait_timeout = %d", int(remote.LockTimeout.Seconds()), int(remote.LockTimeout.Seconds())),
			"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		},
		ReadOnly:    []string{"SET SESSION TRANSACTION READ ONLY"},
		TableExists: "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'kine'",
		HasTable:    "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
		Schema:      schema,
		Check:       "SELECT ''",
		Insert: `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value, old_value)
			SELECT ?, ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM kine WHERE id = ?)`,
		Exists:  exists,
		Share:   "LOCK IN SHARE MODE", // also for MariaDB and MySQL 5.7, which have no FOR SHARE
		In:      "id IN (SELECT id FROM (%s) AS gone)",
		Compact: "DELETE kv FROM kine AS kv INNER JOIN (SELECT ? AS last) AS bound INNER JOIN (%s) AS gone ON kv.id = gone.id WHERE kv.id <= bound.last",
		Session: "SELECT CAST(CONNECTION_ID() AS SIGNED)",
		Others:  sessions,
		End:     "KILL %d",
		Fault:   fault,
	}, nil
}

// trust makes the certificates in ca the only ones that are trusted, and connections without TLS impossible.
func trust(config *mysql.Config, ca []byte) error {
	if len(ca) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt has no certificate in PEM")
	}
	host, _, err := net.SplitHostPort(config.Addr)
	if err != nil {
		return errors.New("ca.crt is of no use with a DSN without a host")
	}
	config.TLS = &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS12}
	config.AllowFallbackToPlaintext = false
	return nil
}

const duplicate = 1062

// exists reports that a key has another version than expected. If a revision exists, that is another error.
func exists(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == duplicate && strings.Contains(e.Message, "kine_name_prev_revision_uindex")
}

// faults are the classes of errors by their numbers, of MySQL (https://dev.mysql.com/doc/mysql-errors/8.4/en/) and of MariaDB.
var faults = map[uint16]dbms.Fault{
	duplicate: dbms.Lost,                                   // only another client can have written the revision
	1040:      dbms.Lost, 1203: dbms.Lost, 1226: dbms.Lost, // too many connections
	1044: dbms.Lost, 1045: dbms.Lost, 1049: dbms.Lost, 1142: dbms.Lost, 1698: dbms.Lost, // the password is wrong, or there is no such database
	1053: dbms.Lost, 1077: dbms.Lost, 1079: dbms.Lost, 1080: dbms.Lost, // the server stops
	1317: dbms.Lost, 1927: dbms.Lost, 3169: dbms.Lost, 4031: dbms.Lost, // the session was ended
	1969: dbms.Lost, 3024: dbms.Lost, // a timeout
	1290: dbms.Lost, 1792: dbms.Lost, 1836: dbms.Lost, // the server is a read-only replica
	1205: dbms.Busy, 1213: dbms.Busy, // lock timeout or deadlock
	1021: dbms.Full, 1114: dbms.Full, // the disk, or the table space
	1034: dbms.Damaged, 1194: dbms.Damaged, 1195: dbms.Damaged, 1712: dbms.Damaged,
	1153: dbms.TooLarge, 1366: dbms.TooLarge, 1406: dbms.TooLarge,
}

func fault(err error) dbms.Fault {
	var e *mysql.MySQLError
	switch {
	case errors.As(err, &e):
		if strings.Contains(e.Message, "No space left on device") || strings.Contains(e.Message, "Got error 28") {
			return dbms.Full
		}
		if f, known := faults[e.Number]; known {
			return f
		}
		return dbms.Failed
	case errors.Is(err, mysql.ErrInvalidConn):
		return dbms.Lost
	case errors.Is(err, mysql.ErrPktTooLarge):
		return dbms.TooLarge
	}
	return dbms.None
}
