// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/kine"
)

// T8, D4: of two stores that have the same database open, only the second one can write, from when it is open.
func TestAStoreThatWasTakenOverAcknowledgesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		first, err := kine.Open(t.Context(), p.options(kine.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		l := &ledger{acked: map[string]int64{}}
		stop := l.write(t, first, 8)
		until(t, func() bool { return l.count() > 300 })

		second := p.elsewhere(t).open(t)
		at := mustRevision(t, second)
		create(t, second, "/registry/child/second", string(childValue("/registry/child/second")))
		resp, err := first.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/late", []byte("1"), 0, kubernetes.PutOptions{})
		if status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), "another process has opened") {
			t.Errorf("write to a store that was taken over: %+v, %v", resp, err)
		}
		if got, err := first.Client().Kubernetes.Get(t.Context(), "/registry/child/0-0", kubernetes.GetOptions{}); err == nil {
			t.Errorf("read of a store that was taken over: %v", got.KV)
		}
		stop()
		if _, err := first.Stats(t.Context()); err == nil || !strings.Contains(err.Error(), "epoch") {
			t.Errorf("stats = %v, want the reason for the owner", err)
		}
		if err := first.Close(); err != nil {
			t.Errorf("close a store that was taken over: %v", err)
		}
		for key, rev := range l.acked {
			if rev > at {
				t.Errorf("%s was acknowledged at %d, after the takeover at %d", key, rev, at)
			}
		}
		if value(t, second, "/registry/late") != "" {
			t.Error("a rejected write is in the database")
		}
		closeStore(t, second)
		mustHold(t, p, l.acked)
	})
}

// The reads of a store that was taken over are not those of its past.
func TestAStoreThatWasTakenOverServesNoReads(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		first, err := kine.Open(t.Context(), p.options(kine.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		rev := create(t, first, "/registry/a", "1")
		second := p.elsewhere(t).open(t)
		put(t, second, "/registry/a", "2", rev)
		if p.server.Type.Cached() { // for a moment, the cache is served
			taken, served := time.Now(), time.Time{} // when the last read began that was served
			until(t, func() bool {
				began := time.Now()
				_, err := first.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{})
				if err == nil {
					served = began
				}
				return err != nil
			})
			if long := served.Sub(taken); long > 3*time.Second {
				t.Errorf("the past was served for %s", long)
			}
		}
		for range 10 {
			if got, err := first.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{}); err == nil {
				t.Fatalf("read %q from a store that was taken over", got.KV.Value)
			}
		}
	})
}

// A process that is stopped in the middle of writes doesn't keep the next one from taking over, and writes nothing when it
// goes on. What it had been told is kept.
func TestAStoppedProcessIsTakenOver(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		for round := range 3 {
			p := p.another(t)
			c := startChild(t, p)
			acked := map[string]int64{}
			for len(acked) < 100 && c.out.Scan() {
				c.note(t, acked)
			}
			time.AfterFunc(time.Duration(rand.Int64N(int64(5*time.Millisecond))), func() { _ = c.cmd.Process.Signal(syscall.SIGSTOP) })
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for c.out.Scan() { // until it is killed
					c.note(t, acked)
				}
			}()
			until(t, func() bool { return c.stopped(t) })
			s := p.elsewhere(t).open(t)
			at := mustRevision(t, s)
			create(t, s, "/registry/child/parent", string(childValue("/registry/child/parent")))
			if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			<-stopped // it ends when a write fails
			if err := c.cmd.Wait(); err == nil {
				t.Error("the child ended without an error")
			}
			for key, rev := range acked {
				if rev > at {
					t.Errorf("round %d: %s was acknowledged at %d, after the takeover at %d", round, key, rev, at)
				}
			}
			closeStore(t, s)
			mustHold(t, p, acked)
		}
	})
}

// D1, D4: a process that is killed leaves what it has acknowledged.
func TestNoAcknowledgedWriteInAServerIsLostToAKill(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		acked := map[string]int64{}
		for range 4 {
			c := startChild(t, p)
			n := len(acked)
			for len(acked) < n+50+rand.IntN(200) && c.out.Scan() {
				c.note(t, acked)
			}
			_ = c.cmd.Process.Kill()
			for c.out.Scan() {
				c.note(t, acked)
			}
			_ = c.cmd.Wait()
		}
		mustHold(t, p, acked)
		if len(acked) < 100 {
			t.Errorf("only %d writes: the test shows nothing", len(acked))
		}
	})
}

func TestADatabaseOfAnotherSpaceIsNotOpened(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		s := p.open(t)
		rev := create(t, s, "/registry/a", "1")
		other := p.elsewhere(t)
		other.server = &kine.Server{Type: p.server.Type, DSN: p.server.DSN, ID: "2"}
		_, err := kine.Open(t.Context(), other.options(kine.Options{}))
		if !errors.Is(err, kine.ErrOtherSpace) || !strings.Contains(fmt.Sprint(err), `"demo" (1)`) || !strings.Contains(fmt.Sprint(err), `"demo" (2)`) {
			t.Errorf("open = %v, want an error that names both spaces", err)
		}
		if err := kine.DropServer(t.Context(), "demo", *other.server); !errors.Is(err, kine.ErrOtherSpace) {
			t.Errorf("drop = %v, want %v", err, kine.ErrOtherSpace)
		}
		put(t, s, "/registry/a", "2", rev) // it is not disturbed
		closeStore(t, s)
		if err := kine.DropServer(t.Context(), "demo", *p.server); err != nil {
			t.Fatal(err)
		}
		other.open(t) // now it is free
	})
}

func TestATableOfAnotherProgramIsLeftAlone(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		p.occupy(t)
		if _, err := kine.Open(t.Context(), p.options(kine.Options{})); !errors.Is(err, kine.ErrNotStore) {
			t.Errorf("open = %v, want %v", err, kine.ErrNotStore)
		}
	})
}

// A DSN has a password, and errors are in a space's status.
func TestHostileNoErrorHasThePassword(t *testing.T) {
	const secret = "hunter2"
	dsns := map[kine.ServerType][]string{
		kine.PostgreSQL: {
			"postgres://u:" + secret + "@127.0.0.1:1/db", "postgres://u:" + secret + "@127.0.0.1:port/db", "u:" + secret + "@tcp(127.0.0.1:1)/db",
			"host=127.0.0.1 port=1 user=u password=" + secret, "host=127.0.0.1 port=x user=u password=" + secret, "postgres://u:" + secret + "%zz@h/db",
		},
		kine.MySQL: {
			"u:" + secret + "@tcp(127.0.0.1:1)/db", "u:" + secret + "@tcp(127.0.0.1:1)", "u:" + secret + "@tcp(127.0.0.1:1)/", "mysql://u:" + secret + "@127.0.0.1:1/db",
			"u:" + secret + "@tcp(127.0.0.1:1)/db?timeout=x",
		},
		kine.Etcd: {
			"http://u:" + secret + "@127.0.0.1:1/db", "https://u:" + secret + "@127.0.0.1:1/db", "http://u:" + secret + "@127.0.0.1:port/db", "http://u:" + secret + "@127.0.0.1:1",
			"http://u:" + secret + "%zz@h:1/db", "u:" + secret + "@127.0.0.1:1/db", "http://u:" + secret + "/@h:1/db", "http://u:x@" + secret + "?@h:1/db", secret,
		},
	}
	dsns[kine.NATS] = []string{
		"nats://u:" + secret + "@127.0.0.1:1/DB", "tls://u:" + secret + "@127.0.0.1:1/DB", "nats://u:" + secret + "@127.0.0.1:port/DB", "nats://u:" + secret + "@127.0.0.1:1",
		"nats://u:" + secret + "@127.0.0.1:1/DB?replicas=x" + secret, "nats://u:" + secret + "@127.0.0.1:1/D.B", "nats://u:" + secret + "%zz@h:1/DB", secret,
	}
	dsns[kine.S3] = []string{
		"http://u:" + secret + "@127.0.0.1:1/bucket/a", "https://u:" + secret + "@127.0.0.1:1/bucket/a", "http://u:" + secret + "@127.0.0.1:port/bucket/a",
		"http://u:" + secret + "@127.0.0.1:1", "http://u:" + secret + "@127.0.0.1:1/BUCKET/a", "http://u:" + secret + "@127.0.0.1:1/bucket//a",
		"http://u:" + secret + "@127.0.0.1:1,127.0.0.1:2/bucket/a", "http://u:" + secret + "@127.0.0.1:1/bucket/a?region=x&region=" + secret,
		"http://u:" + secret + "@127.0.0.1:1/bucket/a?path-style=" + secret, "http://u:" + secret + "%zz@h:1/bucket/a", secret,
	}
	refuses := func(t *testing.T, kind kine.ServerType, dsn string) {
		t.Helper()
		_, err := kine.Open(t.Context(), kine.Options{Name: "demo", Path: filepath.Join(t.TempDir(), "cache.db"), Server: &kine.Server{Type: kind, DSN: dsn, ID: "1"}})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("open = %v", err)
		}
	}
	for kind, list := range dsns {
		for _, dsn := range list {
			refuses(t, kind, dsn)
		}
	}
	onServers(t, func(t *testing.T, p place) {
		dsn := p.server.DSN
		if p.server.Type != kine.MySQL {
			u, err := url.Parse(dsn)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(u.User.Username(), secret)
			dsn = u.String()
		} else {
			name, rest, _ := strings.Cut(dsn, ":")
			_, rest, _ = strings.Cut(rest, "@")
			dsn = name + ":" + secret + "@" + rest
		}
		refuses(t, p.server.Type, dsn)
	})
}
