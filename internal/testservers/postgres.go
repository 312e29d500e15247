// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// whereDebianHas are the directories of PostgreSQL's programs.
const whereDebianHas = "/usr/lib/postgresql/*/bin"

//nolint:gochecknoglobals // one server in a test binary
var postgres = newPostgreSQL()

func newPostgreSQL() *Server {
	return &Server{
		packaged: "postgresql",
		name:     "PostgreSQL",
		as:       userNamed("postgres", "nobody"),
		prepare: func(s *Server) error {
			initdb, err := find("initdb", whereDebianHas)
			if err != nil {
				return err
			}
			return s.run(initdb, "-D", filepath.Join(s.dir, "data"), "-U", "admin", "-E", "UTF8", "--locale=C", "--no-sync",
				"--auth-local=trust", "--auth-host=scram-sha-256")
		},
		command: func(s *Server) *exec.Cmd {
			path, err := find("postgres", whereDebianHas)
			if err != nil {
				path = "postgres" // which fails to start
			}
			args := []string{"-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1"}
			if !s.durable {
				args = append(args, "-c", "fsync=off", "-c", "max_connections=50", "-c", "shared_buffers=32MB")
			}
			return exec.Command(path, args...)
		},
		admin: func(s *Server) (admin, error) {
			db, err := sql.Open("pgx", fmt.Sprintf("host=%s port=%d user=admin database=postgres sslmode=disable", s.dir, s.port))
			return sqlAdmin{db, ownPostgres}, err
		},
		dsn: func(s *Server, name, password string) string {
			return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", name, password, s.port, name)
		},
	}
}

func ownPostgres(name, password string) []string {
	return []string{
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", name, password),
		fmt.Sprintf("CREATE DATABASE %s OWNER %s", name, name),
	}
}

// PostgreSQL returns a running PostgreSQL server.
func PostgreSQL(t testing.TB) *Server {
	t.Helper()
	return postgres.start(t)
}
