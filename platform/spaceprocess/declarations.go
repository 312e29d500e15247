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
	// logAfter is after how many failures in a row the reason is logged, such as a right that is missing.
	logAfter = 5
)

// declarations are what is synced of the space of the process. It is safe for concurrent use.
type declarations struct {
	file    string
	changed chan struct{} // of capacity 1: something else was sent
	logger  klog.Logger

	setting sync.Mutex // held while something else is set

	mu      sync.Mutex
	digest  string                     // of the update that was sent last
	wanted  []*declaration.Declaration // ordered by name
	inForce []*declaration.Declaration // those of them whose objects on the host are known, or what was in force before
	watches uint64                     // how many were new
}

// openDeclarations reads what the platform sent last. If that can't be read, nothing is synced until the platform sends it again.
func openDeclarations(dir string, logger klog.Logger) *declarations {
	s := &declarations{file: filepath.Join(dir, DeclarationsFile), changed: make(chan struct{}, 1), logger: logger}
	all, err := readDeclarations(s.file)
	s.replace(all, "")
	if err != nil {
		logger.Error(err, "Could not read what is synced of the space by ResourceSyncs; nothing is until the platform sends it")
	}
	return s
}

// readDeclarations reads what a file has; nothing if there is none.
func readDeclarations(file string) ([]*declaration.Declaration, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is synced of the space: %w", err)
	}
	return declaration.Decode(data)
}

func writeDeclarations(file string, all []*declaration.Declaration) error {
	data, err := declaration.Encode(all)
	if err == nil {
		err = fsutil.Replace(file, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write what is synced of the space: %w", err)
	}
	return nil
}

// WriteDeclarations updates the [DeclarationsFile] in the directory of a process that doesn't run.
func WriteDeclarations(dir string, update *declaration.Update) error {
	file := filepath.Join(dir, DeclarationsFile)
	before, err := readDeclarations(file)
	if err != nil && len(update.Keep) > 0 {
		return err
	}
	return writeDeclarations(file, update.After(before))
}

// set takes an update of the platform. What is the same as before stays, so that the space doesn't restart for it. After an error, all is as
// it was, and the platform sends the update again.
func (s *declarations) set(data []byte) error {
	update, err := declaration.DecodeUpdate(data)
	if err != nil {
		s.logger.Error(err, "Could not read what the platform sent to be synced of the space; the platform may have another version")
		return apierrors.NewBadRequest(err.Error())
	}
	s.setting.Lock()
	defer s.setting.Unlock()
	s.mu.Lock()
	before := s.wanted
	s.mu.Unlock()
	all := update.After(before)
	if err := writeDeclarations(s.file, all); err != nil {
		return err
	}
	s.replace(all, update.Digest())
	return nil
}

// replace replaces what is wanted. Declarations that are new have their objects watched anew.
func (s *declarations) replace(all []*declaration.Declaration, digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		if !slices.Contains(s.wanted, d) {
			s.watches++
			d.Watch = s.watches
		}
	}
	s.wanted, s.digest = all, digest
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// of returns what is synced of the space.
func (s *declarations) of() []*declaration.Declaration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce
}

// hostWatcher watches the host's objects.
type hostWatcher interface {
	Declare(all []*declaration.Declaration) error
	DeclaredReady(name string) error
}

// declare has the host's objects watched, and puts in force what is known. It returns why something is not in force yet.
func (s *declarations) declare(host hostWatcher) (pending error) {
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
func (s *declarations) begin(ctx context.Context, host hostWatcher) {
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
func (s *declarations) follow(ctx context.Context, host hostWatcher, restartUnless func(ctx context.Context, current func(*shard.Space) bool) error) {
	failed := 0
	for {
		pending := safego.Call("take up what is synced of the space", func() error {
			pending := s.declare(host)
			inForce := declaration.WatchedVersions(s.of())
			err := restartUnless(ctx, func(space *shard.Space) bool { return declaration.WatchedVersions(space.Declared()) == inForce })
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
			if failed++; failed == logAfter {
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
		data, err := sentBody(r, maxDeclarations, "what is synced of the space has more than %d MiB; select its tenant in fewer ResourceSyncs")
		if err != nil {
			return nil, err
		}
		return nil, s.set(data)
	}))
	mux.Handle("GET "+dedicated.DeclarationsPath, control.Answer(func(*http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return dedicated.Declared{Digest: s.digest}, nil
	}))
}
