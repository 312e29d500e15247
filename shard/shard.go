// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/shard/crashlog"
	"github.com/berth-dev/berth/shard/credentials"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/vcluster/schemas"
)

var (
	// ErrTaken is returned for a space that already has a place. It keeps it until its stop has ended.
	ErrTaken = errors.New("the space exists already")
	// ErrUnknown is returned for a space that has no place here.
	ErrUnknown = errors.New("the space does not exist here")
	// ErrStopped is returned while the space, or the whole shard, is being stopped.
	ErrStopped = errors.New("the Berth server is stopping")
)

// Shard runs spaces. It is safe for concurrent use.
type Shard struct {
	config       Config
	host         *syncer.Host
	serviceRange string
	volume       *kine.Volume
	credentials  *credentials.Verifier
	stored       *storedGrants

	// life ends with Stop. work has all background goroutines.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	poke chan struct{} // makes the keeper check all places

	log   *crashlog.Log // records the active spaces; nil if nothing is recorded
	began time.Time

	mu       sync.Mutex
	places   map[string]*place
	held     map[string]bool // see Hold
	queue    []*place        // to be started, in this order
	later    []*place        // to be started when nobody waits for another
	suspects []*place        // to be started after those that somebody waits for, one group after the other
	trials   []*place        // the suspects of one group that start or run
	slow     int             // slow starts among starting
	awake    int             // starting, running or stopping
	starting int
	leaving  int       // in trySleep, or stopping
	giveBack time.Time // when memory is returned to the system; zero if none was freed
	stopped  bool
}

// Start connects to the host, and returns when its watches have synced. ctx limits only the start.
func Start(ctx context.Context, c Config) (*Shard, error) {
	c = c.complete()
	host, err := syncer.NewHost(c.Host, c.Sync)
	if err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	cidr, err := host.ServiceRange(ctx)
	if err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	if err := host.Own(ctx, c.Own...); err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	if err := host.Start(ctx); err != nil {
		return nil, fmt.Errorf("start shard: %w", err)
	}
	if err := checkDefinitions(host.Definitions); err != nil {
		host.Stop()
		return nil, fmt.Errorf("start shard: %w", err)
	}
	s := &Shard{
		config: c, host: host, serviceRange: cidr, volume: kine.NewVolume(c.Dir),
		stored: newStoredGrants(), poke: make(chan struct{}, 1), places: map[string]*place{}, held: map[string]bool{},
	}
	if s.credentials, err = credentials.New(s.dir, s.config.SpacesMax, s.config.Clock); err != nil {
		host.Stop()
		return nil, fmt.Errorf("start shard: %w", err)
	}
	s.credentials.Former = s.isFormerOwners
	// This is the last step, because a process that fails before it has run no space: the records are about the process
	// before it.
	s.began = c.Clock.Now()
	if c.ActiveDir != "" {
		if s.log, err = crashlog.Open(c.ActiveDir, c.Clock); err != nil {
			c.Logger.Error(err, "Could not read in full which spaces were active at a crash; the spaces start nevertheless", "dir", c.ActiveDir)
		}
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.work.Go(s.keep)
	if s.log != nil {
		s.work.Go(s.noteUse)
	}
	if s.config.Memory != nil {
		s.work.Go(func() { s.guardMemory(*s.config.Memory) })
	}
	return s, nil
}

// checkDefinitions returns an error if the definition of a synced resource is beyond what spaces may define.
func checkDefinitions(synced map[string]*definitions.Shared) error {
	for resource, shared := range synced {
		if err := schemas.CheckShared(shared.CRD); err != nil {
			return fmt.Errorf("sync of %s: the host's CustomResourceDefinition %s: %w; install another one, or disable the resource", resource, shared.CRD.Name, err)
		}
	}
	return nil
}

// Add gives a space a place. The space stays asleep until a request, Wake, or WarmUp wants it.
func (s *Shard) Add(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return fmt.Errorf("add space %s: %w", name, ErrStopped)
	case s.places[name] != nil:
		return fmt.Errorf("add space %s: %w", name, ErrTaken)
	}
	now := s.config.Clock.Now()
	p := &place{name: name, since: now, readySince: now, tell: s.config.Changed}
	p.wasReady = p.ready()
	s.suspect(p)
	s.places[name] = p
	return nil
}

// StartSpace adds a space and wakes it. ctx limits only the start. On error, the space has no place, and nothing of it
// runs.
func (s *Shard) StartSpace(ctx context.Context, name string) (*Space, error) {
	if err := s.Add(name); err != nil {
		return nil, err
	}
	if err := s.Wake(ctx, name); err != nil {
		return nil, errors.Join(err, s.StopSpace(context.WithoutCancel(ctx), name))
	}
	if space := s.Space(name); space != nil {
		return space, nil
	}
	return nil, fmt.Errorf("start space %s: %w", name, ErrStopped)
}

// Space returns a space that is awake, or nil.
func (s *Shard) Space(name string) *Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil {
		return p.space
	}
	return nil
}

// Names returns the sorted names of the spaces that have a place here.
func (s *Shard) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.places))
}

// ForgetCredentials makes the shard verify the credentials of a space again, because its keys have changed. The space
// need not have a place here.
func (s *Shard) ForgetCredentials(space string) { s.credentials.Forget(space) }

// Host returns the shared view of the host, with the addresses of pods and the records for DNS.
func (s *Shard) Host() *syncer.Host { return s.host }

// ServiceRange returns the host's range of cluster IPs, in CIDR notation.
func (s *Shard) ServiceRange() string { return s.serviceRange }

// Handler returns the handler of a space's API, which wakes the space. It returns nil if the space has no place here
// and is not held.
func (s *Shard) Handler(name string) http.Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil {
		return &spaceHandler{shard: s, place: p}
	}
	if s.held[name] {
		return restoring(name)
	}
	return nil
}

// StopSpace ends a space or its start, waits for the end, and removes its place. The space's host objects keep running.
// If ctx ends first, StopSpace returns an error, and the stop continues.
func (s *Shard) StopSpace(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.places[name]
	if p == nil {
		s.mu.Unlock()
		return nil
	}
	p.removed = true
	p.stopErr = nil // of an earlier stop, by which the space went to sleep
	switch p.state {
	case asleep:
		s.drop(p)
	case queued:
		s.unqueue(p)
		s.drop(p)
	case starting:
		p.abort()
	case running:
		s.halt(p)
	case stopping:
	}
	for s.places[name] == p {
		turn := p.next()
		s.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return fmt.Errorf("stop space %s: %w", name, context.Cause(ctx))
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	return p.stopErr
}

// Disown reduces what the process caches of the host's objects of a space that has no place here, and gets none. If
// it has a place, Disown does nothing.
func (s *Shard) Disown(name string) error {
	s.mu.Lock()
	if s.places[name] != nil {
		s.mu.Unlock()
		return nil
	}
	reduce := s.host.BeginDisown(name)
	s.mu.Unlock()
	return reduce()
}

// Forget removes the records of a deleted space that has no place.
func (s *Shard) Forget(name string) error { return s.log.Forget(name) }

// drop removes the place of a space that does not run.
func (s *Shard) drop(p *place) {
	p.release()
	p.resolve(ErrStopped)
	delete(s.places, p.name)
	s.credentials.Forget(p.name)
	p.turned()
}

// Stop stops all spaces, including those that are starting, and then the watches on the host. After that, no space can
// be added or woken.
func (s *Shard) Stop(ctx context.Context) (err error) {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	var wg sync.WaitGroup
	names := s.Names()
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() { errs[i] = s.StopSpace(ctx, name) })
	}
	wg.Wait()
	s.end()
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		s.work.Wait()
	}()
	select {
	case <-rest:
	case <-ctx.Done():
		err = fmt.Errorf("stop shard: %w", context.Cause(ctx))
	}
	s.host.Stop()
	return errors.Join(errors.Join(errs...), err)
}

func (s *Shard) dir(space string) string { return filepath.Join(s.config.Dir, space) }
