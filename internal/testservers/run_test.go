// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if Serve() {
		return
	}
	os.Exit(m.Run())
}

// A benchmark has a server of its own, of which nothing is left after it.
func TestAServerOfABenchmarkLeavesNothing(t *testing.T) {
	for _, kind := range []string{"Etcd", "NATS"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, err := Run(kind)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			first, err := s.NewDatabase()
			if err != nil {
				t.Fatal(err)
			}
			second, err := s.NewDatabase()
			if err != nil {
				t.Fatal(err)
			}
			if first == second {
				t.Errorf("two databases have the DSN %s", first)
			}
			process := fmt.Sprint("/proc/", s.cmd.Process.Pid)
			environment, err := os.ReadFile(process + "/environ")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(environment), durableEnv+"=true") {
				t.Error("the server isn't to sync what it acknowledges")
			}
			s.Stop()
			if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its directory is there (%v)", err)
			}
			if _, err := os.Stat(process); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its process is there (%v)", err)
			}
		})
	}
	if _, err := Run("SQLite"); err == nil {
		t.Error("a store in a file has a server")
	}
}

// Whoever misses a server's programs reads which package has them, and at once.
func TestAMissingServerNamesItsPackage(t *testing.T) {
	missing := func(*Server) error {
		_, err := find("no-such-program-of-berth")
		return err
	}
	found := func(*Server) error { return nil }
	for name, prepare := range map[string]func(*Server) error{"all": missing, "the server": found} {
		s := newPostgreSQL()
		s.prepare, s.command = prepare, func(*Server) *exec.Cmd { return exec.Command("no-such-program-of-berth") }
		err := s.begin()
		s.Stop()
		if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "install the package postgresql") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
