// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTime limits how long a server may take to accept connections.
const startTime = 3 * time.Minute

// Server is a running database server. Its methods are not safe for concurrent use, except Database and NewDatabase.
type Server struct {
	name     string
	packaged string  // the package of Debian with its programs; empty if this binary has them
	durable  bool    // whether it syncs what it acknowledges to the disk, and has the memory that it has by default
	member   *member // nil if it is alone
	dir      string
	port     int
	as       *syscall.Credential // nil for the user of the test
	command  func(*Server) *exec.Cmd
	prepare  func(*Server) error
	admin    func(*Server) (admin, error)
	dsn      func(s *Server, name, password string) string

	once sync.Once
	err  error
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
}

// admin is a connection of the server's administrator.
type admin interface {
	// Ping fails if the server doesn't accept connections.
	Ping() error
	// create creates a database and a role that owns it.
	create(name, password string) error
	Close() error
}

// sqlAdmin is an admin of an SQL server. owner returns the statements that create a database.
type sqlAdmin struct {
	*sql.DB
	owner func(name, password string) []string
}

func (a sqlAdmin) create(name, password string) error {
	for _, statement := range a.owner(name, password) {
		if _, err := a.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

// start starts the server with the first call, or skips the test.
func (s *Server) start(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.err = s.begin() })
	if errors.Is(s.err, exec.ErrNotFound) {
		t.Skipf("skip: %v", s.err)
	}
	if s.err != nil {
		t.Fatalf("start %s: %v", s.name, s.err)
	}
	return s
}

// begin makes the server's files, and starts it. If its programs are missing, the error wraps [exec.ErrNotFound], and names the package
// that has them.
func (s *Server) begin() error {
	err := s.create()
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%s isn't installed here; install the package %s: %w", s.name, s.packaged, err)
	}
	return err
}

func (s *Server) create() error {
	if err := s.reserve(); err != nil {
		return err
	}
	if err := s.prepare(s); err != nil {
		return err
	}
	return s.Start()
}

// reserve makes the server's directory, and chooses its port.
func (s *Server) reserve() (err error) {
	if s.dir, err = os.MkdirTemp("", "berth-testserver-"); err != nil {
		return err
	}
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return err
		}
	}
	s.port, err = FreePort()
	return err
}

// address is where the server listens.
func (s *Server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// run runs a program to its end, as the server's user.
func (s *Server) run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// Start starts the server after Kill, and waits until it accepts connections.
func (s *Server) Start() error {
	end := time.Now().Add(startTime)
	for {
		err := s.launch(end)
		if err == nil || errors.Is(err, exec.ErrNotFound) || time.Now().After(end) {
			return err
		}
	}
}

func (s *Server) launch(end time.Time) error {
	logFile, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	s.cmd, s.gone = s.command(s), make(chan struct{})
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, logFile, logFile
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait()
		close(gone)
	}(s.cmd, s.gone)
	db, err := s.admin(s)
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = db.Ping(); err == nil {
			return nil
		}
		select {
		case <-s.gone:
			text, _ := os.ReadFile(logFile.Name())
			return fmt.Errorf("the server has ended: %s", text[max(0, len(text)-2000):])
		case <-tick.C:
			if time.Now().After(end) {
				return err
			}
		}
	}
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.gone
}

// Pause stops the server's processes, so that it doesn't respond, until Continue. It returns when all threads have stopped.
func (s *Server) Pause() {
	s.signal(syscall.SIGSTOP)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, pid := range s.processes() {
		for !stopped(pid) {
			<-tick.C
		}
	}
}

// stopped reports whether all threads of a process are stopped, or it has ended.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range stats {
		text, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(text), ") ")
		if err == nil && !strings.HasPrefix(state, "T") && !strings.HasPrefix(state, "Z") {
			return false
		}
	}
	return true
}

// Continue ends a Pause.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, sig)
	}
}

// processes returns the server's process and its children.
func (s *Server) processes() []int {
	own := s.cmd.Process.Pid
	pids := []int{own}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(own) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Database creates a database and a role that owns it, and returns their DSN.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	dsn, err := s.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return dsn
}

// NewDatabase is Database outside of tests.
func (s *Server) NewDatabase() (dsn string, err error) {
	db, err := s.admin(s)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", s.name, err)
	}
	defer db.Close()
	name, password := "t"+strings.ToLower(rand.Text()[:12]), rand.Text()
	if err := db.create(name, password); err != nil {
		return "", fmt.Errorf("create a database in %s: %w", s.name, err)
	}
	return s.dsn(s, name, password), nil
}

// Exec runs a statement as the server's administrator.
func (s *Server) Exec(ctx context.Context, statement string) error {
	db, err := s.admin(s)
	if err != nil {
		return err
	}
	defer db.Close()
	database, is := db.(sqlAdmin)
	if !is {
		return fmt.Errorf("%s runs no statements", s.name)
	}
	_, err = database.ExecContext(ctx, statement)
	return err
}

// Stop ends all servers and removes their files. TestMain calls it at the end.
func Stop() {
	for _, s := range []*Server{postgres, mariadb, etcd, nats, s3} {
		s.Stop()
	}
}

// Stop ends the server and removes its files. It may be called again.
func (s *Server) Stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.Continue()
		s.Kill()
		s.cmd = nil
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// userNamed returns the first of the users that exists, if the test runs as root, which servers refuse.
func userNamed(names ...string) *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

// find returns the path of a program, also outside of PATH.
func find(name string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(filepath.Join(pattern, name)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}
