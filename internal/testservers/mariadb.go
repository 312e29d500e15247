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

	"github.com/go-sql-driver/mysql"
)

//nolint:gochecknoglobals // one server in a test binary
var mariadb = newMariaDB()

func newMariaDB() *Server {
	return &Server{
		packaged: "mariadb-server",
		name:     "MariaDB",
		as:       userNamed("mysql", "nobody"),
		prepare: func(s *Server) error {
			install, err := find("mariadb-install-db")
			if err != nil {
				return err
			}
			return s.run(install, "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"), "--auth-root-authentication-method=normal", "--skip-test-db")
		},
		command: func(s *Server) *exec.Cmd {
			path, err := find("mariadbd", "/usr/sbin")
			if err != nil {
				path = "mariadbd" // which fails to start
			}
			args := []string{
				"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--socket=" + filepath.Join(s.dir, "s"),
				"--pid-file=" + filepath.Join(s.dir, "pid"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--skip-name-resolve",
				"--innodb-flush-log-at-trx-commit=1", "--performance-schema=OFF",
			}
			if !s.durable {
				args = append(args, "--innodb-buffer-pool-size=64M")
			}
			return exec.Command(path, args...)
		},
		admin: func(s *Server) (admin, error) {
			c := mysql.NewConfig()
			c.User, c.Net, c.Addr, c.Logger = "root", "unix", filepath.Join(s.dir, "s"), &mysql.NopLogger{}
			connector, err := mysql.NewConnector(c)
			if err != nil {
				return nil, err
			}
			return sqlAdmin{sql.OpenDB(connector), ownMariaDB}, nil
		},
		dsn: func(s *Server, name, password string) string {
			return fmt.Sprintf("%s:%s@tcp(127.0.0.1:%d)/%s", name, password, s.port, name)
		},
	}
}

func ownMariaDB(name, password string) []string {
	return []string{
		"CREATE DATABASE " + name,
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", name, password),
		fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'%%'", name, name),
	}
}

// MariaDB returns a running MariaDB server.
func MariaDB(t testing.TB) *Server {
	t.Helper()
	return mariadb.start(t)
}
