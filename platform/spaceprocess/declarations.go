// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/syncer/declaration"
)

// DeclarationsFile has what is synced of the space of a process by ResourceSyncs, as [declaration.Encode] encodes it: at its first start, and
// then what the platform sent last. So a process that starts doesn't lack it until the platform sends it.
const DeclarationsFile = "declarations.json"

const (
	// maxDeclarations limits what is synced of the space in a request, in bytes.
	maxDeclarations = 64 << 20
	// firstObjects limits how long the start of the space waits for the host's objects. If the host doesn't answer, the space begins without.
	firstObjects = 5 * time.Second
	// objectsPause is the pause between two questions whether the host's objects are known, and after the space could not be restarted.
	objectsPause = time.Second
	// tellAfter is after how many failures in a row the log says why, such as a right that is missing.
	tellAfter = 5
)

// declarations are what is synced of the space of the process. It is safe for concurrent use.
type declarations struct {
	file    string
	changed chan struct{} // of capacity 1: something else was sent
	logger  klog.Logger

	mu      sync.Mutex
	digest  string                     // of what was sent last
	wanted  []*declaration.Declaration // ordered by name
	inForce []*declaration.Declaration // those of them whose objects on the host are known, or what was in force before
	watches uint64                     // how many were new
}

// openDeclarations reads what the platform sent last. If that can't be read, nothing is synced until the platform sends it.
func openDeclarations(dir string, logger klog.Logger) *declarations {
	s := &declarations{file: filepath.Join(dir, DeclarationsFile), changed: make(chan struct{}, 1), logger: logger}
	data, err := os.ReadFile(s.file)
	if err == nil {
		err = s.want(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Error(err, "Could not read what is synced of the space by ResourceSyncs; nothing is until the platform sends it")
	}
	return s
}

// want notes what the platform has sent. What says the same as before is the same, so that the space doesn't restart.
func (s *declarations) want(data []byte) error {
	all, err := declaration.Decode(data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, d := range all {
		if same := slices.IndexFunc(s.wanted, d.SameAs); same >= 0 {
			all[i] = s.wanted[same]
			continue
		}
		s.watches++
		d.Watch = s.watches
	}
	s.wanted, s.digest = all, dedicated.DeclarationsDigest(data)
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// set replaces what is synced.
func (s *declarations) set(data []byte) error {
	if err := s.want(data); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := fsutil.Replace(s.file, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}); err != nil {
		return fmt.Errorf("write what is synced of the space: %w", err)
	}
	return nil
}

// of returns what is synced of the space.
func (s *declarations) of() []*declaration.Declaration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce
}

// host is what watches the host's objects.
type host interface {
	Declare(all []*declaration.Declaration) error
	DeclaredReady(name string) error
}

// declare has the host's objects watched, and puts in force what is known. It returns why something is not in force yet.
func (s *declarations) declare(host host) (pending error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := host.Declare(s.wanted); err != nil {
		return err
	}
	var inForce []*declaration.Declaration
	for _, d := range s.wanted {
		if slices.Contains(s.inForce, d) {
			inForce = append(inForce, d)
			continue
		}
		err := host.DeclaredReady(d.Name)
		if err == nil {
			inForce = append(inForce, d)
			continue
		}
		pending = errors.Join(pending, err)
		if before := slices.IndexFunc(s.inForce, func(o *declaration.Declaration) bool { return o.Name == d.Name }); before >= 0 {
			inForce = append(inForce, s.inForce[before])
		}
	}
	s.inForce = inForce
	return pending
}

// begin waits for the host's objects, for a limited time, before the space begins.
func (s *declarations) begin(ctx context.Context, host host) {
	ctx, cancel := context.WithTimeout(ctx, firstObjects)
	defer cancel()
	for {
		pending := s.declare(host)
		if pending == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.logger.Error(pending, "The space begins without some of what is synced of it by ResourceSyncs; Berth retries")
			return
		case <-time.After(objectsPause / 10):
		}
	}
}

// follow has the space restart when something else is synced of it, until ctx ends. A space that sleeps is not woken.
func (s *declarations) follow(ctx context.Context, host host, restartUnless func(ctx context.Context, current func(*shard.Space) bool) error) {
	failed := 0
	for {
		pending := safego.Call("take up what is synced of the space", func() error {
			pending := s.declare(host)
			inForce := declaration.VersionOf(s.of())
			err := restartUnless(ctx, func(space *shard.Space) bool { return declaration.VersionOf(space.Declared()) == inForce })
			if errors.Is(err, shard.ErrUnknown) { // it begins later
				err = nil
			}
			return errors.Join(pending, err)
		})
		var again <-chan time.Time
		if pending == nil {
			failed = 0
		} else {
			again = time.After(objectsPause)
			if failed++; failed == tellAfter {
				s.logger.Error(pending, "The space doesn't have all that is synced of it by ResourceSyncs; Berth retries")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-again:
		}
	}
}

// serve adds the routes for what is synced of the space.
func (s *declarations) serve(mux *http.ServeMux) {
	mux.Handle("PUT "+dedicated.DeclarationsPath, control.Answer(func(r *http.Request) (any, error) {
		data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxDeclarations))
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, s.set(data)
	}))
	mux.Handle("GET "+dedicated.DeclarationsPath, control.Answer(func(*http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return dedicated.Declared{Digest: s.digest}, nil
	}))
}

// withdrawals ask the platform to delete objects on the host that this process doesn't know of. The zero value is ready to use.
type withdrawals struct {
	questions questions[dedicated.Withdrawal, dedicated.Withdrawn]
}

// withdraw implements the function of [shard.Config].
func (w *withdrawals) withdraw(ctx context.Context, _ string, runs []string) error {
	done, err := w.questions.ask(ctx, func(id uint64) dedicated.Withdrawal { return dedicated.Withdrawal{ID: id, Runs: runs} })
	if err == nil && done.Failed != "" {
		err = errors.New(done.Failed)
	}
	return err
}

// serve adds the routes for withdrawals.
func (w *withdrawals) serve(mux *http.ServeMux) {
	w.questions.serve(mux, dedicated.WithdrawalsPath, func(done dedicated.Withdrawn) { w.questions.answer(done.ID, done) })
}
