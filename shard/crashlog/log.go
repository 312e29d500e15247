// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crashlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	suffix = ".json"
	// noteEvery bounds how often it is noted that a space does something.
	noteEvery = time.Second
	// clearedAfter is how long a suspect that is not on trial runs until it is cleared.
	clearedAfter = 10 * time.Minute
	// beganFile is a file whose modification time is when the process began.
	beganFile = "began"
	// weightsFile says how much memory was accounted to spaces that held leastWeight bytes or more, in MiB.
	weightsFile = "weights"
	leastWeight = 4 << 20
)

// Log is the spaces of one process. Its methods may be called concurrently, but
// Started and Stopped of a space only one after the other. A nil Log keeps
// nothing, and suspects nobody.
type Log struct {
	dir   string
	clock clock.PassiveClock

	mu     sync.Mutex
	spaces map[string]*entry // that were active or suspected since the process began
	held   map[string]Held

	weighing sync.Mutex
	weights  map[string]int64 // as they were written last
}

// entry is what is known of a space.
type entry struct {
	noted atomic.Int64 // when it was last noted that the space did something, in ns

	mu     sync.Mutex
	record record
}

// Open reads what the process before left in dir, which may be missing, and
// decides which spaces are suspects. The log that it returns can be used whatever
// the error, which says what could not be read or noted.
func Open(dir string, clock clock.PassiveClock) (*Log, error) {
	l := &Log{dir: dir, clock: clock, spaces: map[string]*entry{}}
	if err := l.open(); err != nil {
		return l, fmt.Errorf("open the log of active spaces: %w", err)
	}
	return l, nil
}

func (l *Log) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	began, now := filepath.Join(l.dir, beganFile), l.clock.Now()
	var before time.Time
	if info, err := os.Stat(began); err == nil {
		before = info.ModTime()
	}
	left, err := readAll(l.dir)
	errs := []error{err, l.readWeights(left)}
	var suspects map[string]Suspect
	suspects, l.held = judge(left, before)
	for name := range left {
		e := &entry{record: record{Suspect: suspects[name]}}
		// There may be hundreds, and a loss in a power failure would do no harm.
		errs = append(errs, l.save(name, e.record, false))
		if !e.record.empty() {
			l.spaces[name] = e
		}
	}
	err = os.WriteFile(began, nil, 0o600)
	if err == nil {
		err = os.Chtimes(began, now, now)
	}
	return errors.Join(append(errs, err)...)
}

// Held reports whether and how a space is held back.
func (l *Log) Held(space string) (h Held, held bool) {
	if l == nil {
		return Held{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h, held = l.held[space]
	return h, held
}

// Started notes durably that a space is active from since on. trial is set if it is
// held back. Several may be called at once: since says in which order the spaces were
// started.
func (l *Log) Started(space string, since time.Time, trial *Held) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	e := l.spaces[space]
	if e == nil {
		e = &entry{}
		l.spaces[space] = e
	}
	l.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record.Running, e.record.Since = true, since
	e.record.Trial, e.record.Sure = trial != nil, trial != nil && trial.Sure
	if err := l.save(space, e.record, true); err != nil {
		return fmt.Errorf("note that space %s is active: %w", space, err)
	}
	return nil
}

// Stopped notes that a space has stopped cleanly.
func (l *Log) Stopped(space string) error {
	return l.change(space, func(r *record) { r.Running, r.Trial, r.Sure = false, false, false })
}

// Survived notes that a space has survived its trial.
func (l *Log) Survived(space string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	delete(l.held, space)
	l.mu.Unlock()
	return l.change(space, func(r *record) {
		r.Trial, r.Sure = false, false
		// It is not cleared yet: it may take longer to end the process than a trial.
		r.Suspect = Suspect{Active: max(1, r.Suspect.Active)}
		r.Since = l.clock.Now()
	})
}

// Forget forgets a space that is deleted: one of its name that is created later is no suspect.
func (l *Log) Forget(space string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	delete(l.held, space)
	l.mu.Unlock()
	return l.change(space, func(r *record) { *r = record{} })
}

// Clear clears the suspects that have run long enough.
func (l *Log) Clear() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	spaces := maps.Clone(l.spaces)
	l.mu.Unlock()
	var errs []error
	for name, e := range spaces {
		e.mu.Lock()
		r := e.record
		e.mu.Unlock()
		if r.due(l.clock.Now()) {
			errs = append(errs, l.change(name, func(r *record) {
				if r.due(l.clock.Now()) {
					r.Suspect = Suspect{}
				}
			}))
		}
	}
	return errors.Join(errs...)
}

// due reports whether a suspect is to be cleared.
func (r record) due(now time.Time) bool {
	return r.Running && !r.Trial && r.Suspect != Suspect{} && now.Sub(r.Since) >= clearedAfter
}

// change changes the record of a space that has one.
func (l *Log) change(space string, how func(*record)) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	e := l.spaces[space]
	l.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	how(&e.record)
	if err := l.save(space, e.record, false); err != nil {
		return fmt.Errorf("note how space %s is: %w", space, err)
	}
	return nil
}

// Used notes that a space does something: it has requests, or work of its own. It
// may be called for each request.
func (l *Log) Used(space string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	e := l.spaces[space]
	l.mu.Unlock()
	if e == nil {
		return
	}
	now := l.clock.Now()
	last := e.noted.Load()
	if now.UnixNano()-last < int64(noteEvery) || !e.noted.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	_ = os.Chtimes(l.path(space), now, now) // it has just stopped, or it matters little
}

// Weigh notes how many bytes of memory are accounted to the spaces that run. It may be called every fraction of a second:
// it writes a small file, and only if some space holds much and that has changed. A loss in a power failure does no harm.
func (l *Log) Weigh(bytes map[string]int64) error {
	if l == nil {
		return nil
	}
	weights := map[string]int64{}
	for name, n := range bytes {
		if n >= leastWeight {
			weights[name] = n >> 20
		}
	}
	l.weighing.Lock()
	defer l.weighing.Unlock()
	if maps.Equal(weights, l.weights) {
		return nil
	}
	path, err := filepath.Join(l.dir, weightsFile), error(nil)
	if len(weights) == 0 {
		err = os.Remove(path)
	} else {
		var data []byte
		if data, err = json.Marshal(weights); err == nil {
			err = os.WriteFile(path+".tmp", data, 0o600)
		}
		if err == nil {
			err = os.Rename(path+".tmp", path)
		}
	}
	if err != nil {
		return fmt.Errorf("note how much memory spaces hold: %w", err)
	}
	l.weights = weights
	return nil
}

// readWeights adds to the records of a process that is gone how much memory the spaces held, if that is known, and removes
// the file.
func (l *Log) readWeights(left map[string]record) error {
	path := filepath.Join(l.dir, weightsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var weights map[string]int64
	if err == nil && json.Unmarshal(data, &weights) == nil {
		for name, n := range weights {
			if r, ok := left[name]; ok {
				r.weight = n
				left[name] = r
			}
		}
	}
	return errors.Join(err, os.Remove(path))
}

func (l *Log) path(space string) string { return filepath.Join(l.dir, space+suffix) }

// save makes a space's file hold r; there is none for one that is empty.
func (l *Log) save(space string, r record, durable bool) error {
	path := l.path(space)
	if r.empty() {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil && durable {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	now := l.clock.Now()
	if err == nil {
		err = os.Chtimes(tmp.Name(), now, now)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil || !durable {
		return err
	}
	dir, err := os.Open(l.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// readAll reads the records of a process that is gone, all that it can. One that
// can't be read is of a space that was active.
func readAll(dir string) (map[string]record, error) {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	left := map[string]record{}
	for _, e := range entries {
		space, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue // one that was being written: the one before it counts
		}
		info, err := e.Info()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a file: remove it", filepath.Join(dir, e.Name()))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		errs = append(errs, err)
		var r record
		if err != nil || json.Unmarshal(data, &r) != nil {
			r = record{Running: true}
		}
		r.used = info.ModTime()
		left[space] = r
	}
	return left, errors.Join(errs...)
}
