// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

func mux() *http.ServeMux {
	m := http.NewServeMux()
	m.Handle("GET /name", control.Answer(func(*http.Request) (any, error) { return "argo", nil }))
	m.Handle("POST /fail", control.Answer(func(*http.Request) (any, error) { return nil, errors.New("out of order") }))
	m.Handle("POST /missing", control.Answer(func(*http.Request) (any, error) {
		return nil, fmt.Errorf("wake: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "spaces"}, "argo"))
	}))
	m.Handle("GET /forever", control.Answer(func(r *http.Request) (any, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	return m
}

func serve(t *testing.T, dir string) *control.Server {
	t.Helper()
	s, err := control.Serve(filepath.Join(dir, control.Name), mux(), klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *control.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	s.Stop(ctx)
	if ctx.Err() != nil {
		t.Error("the server did not stop")
	}
}

// A data directory may lie deep, and a dead process may have left its socket.
func TestACommandAsksTheRunningBerth(t *testing.T) {
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	stale := t.TempDir()
	if err := os.WriteFile(filepath.Join(stale, control.Name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a new directory": t.TempDir(), "a deep one": deep, "one that was used": stale} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, dir)
			defer stop(t, s)
			info, err := os.Stat(filepath.Join(dir, control.Name))
			if err != nil || info.Mode() != fs.ModeSocket|0o600 {
				t.Errorf("the socket is %v (%v), want one for its owner alone", info.Mode(), err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the directory holds %v (%v), want the socket alone", entries, err)
			}
			c := control.NewClient(dir)
			var got string
			if err := c.Do(t.Context(), http.MethodGet, "/name", &got); err != nil || got != "argo" {
				t.Errorf("got %q (%v)", got, err)
			}
			if err := c.Do(t.Context(), http.MethodPost, "/missing", nil); !apierrors.IsNotFound(err) || err.Error() != `wake: spaces "argo" not found` {
				t.Errorf("got %v, want a not found, and what was being done", err)
			}
			if err := c.Do(t.Context(), http.MethodPost, "/fail", nil); err == nil || err.Error() != "out of order" {
				t.Errorf("got %v, want the error as it is", err)
			}
			if err := c.Do(t.Context(), http.MethodPost, "/unknown", nil); err == nil || !strings.Contains(err.Error(), "404") {
				t.Errorf("got %v, want a 404", err)
			}
		})
	}
}

func TestAStopEndsWhatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir)
	asked := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { asked <- control.NewClient(dir).Do(ctx, http.MethodGet, "/forever", nil) }()
	stop(t, s)
	if err := <-asked; err == nil {
		t.Error("the request succeeded")
	}
	err := control.NewClient(dir).Do(t.Context(), http.MethodGet, "/name", nil)
	if err == nil || !strings.Contains(err.Error(), "the Berth server is not running on "+dir) {
		t.Errorf("after the stop got %v", err)
	}
}

// S3: what somebody refuses who isn't trusted can't act on a terminal, nor fill a log or a status.
func TestHostileRefusalsAreShownInPart(t *testing.T) {
	dir := t.TempDir()
	said := "\x1b]0;x\a" + strings.Repeat("no\n", 1<<13)
	server, err := control.Serve(filepath.Join(dir, control.Name), control.Answer(func(*http.Request) (any, error) {
		return nil, apierrors.NewBadRequest(said)
	}), klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, server)
	remote := control.NewClientTo("elsewhere", 1<<10, func(ctx context.Context) (net.Conn, error) {
		return control.DialSocket(ctx, filepath.Join(dir, control.Name))
	})
	err = remote.Do(t.Context(), http.MethodGet, "/", nil)
	if !apierrors.IsBadRequest(err) || len(err.Error()) > 3<<10 || strings.ContainsAny(err.Error(), "\x1b\a\n") || !strings.Contains(err.Error(), "no no no") {
		t.Errorf("from elsewhere: %q", err)
	}
	if err := control.NewClient(dir).Do(t.Context(), http.MethodGet, "/", nil); err == nil || err.Error() != said {
		t.Errorf("from the berth of this machine: %q", err)
	}
}
