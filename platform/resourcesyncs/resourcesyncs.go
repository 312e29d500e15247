// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcesyncs gives the spaces of a platform what the ResourceSyncs of the host declare: which custom resources are synced
// between them and the host. The manager calls it. It syncs no objects and never talks to a space.
//
// What spaces have ends only if the host says so: its ResourceSync, its CRDShare, or its definition is gone, its spec has become invalid,
// or its policy is missing. While the host can't be asked, spaces keep what they have.
//
//   - resourcesyncs.go: [Syncs], and how they follow the host.
//   - check.go: what becomes of one ResourceSync.
//   - spaces.go: what each space has.
//   - status.go: the condition Ready.
//   - strays.go: what is deleted on the host when a sync ends.
package resourcesyncs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/hostwatch"
	"github.com/berth-dev/berth/syncer/declaration"
)

const (
	// settleTime is how long a change waits for the next one.
	settleTime = 100 * time.Millisecond
	// pollInterval is the pause between two questions whether the host's objects are known.
	pollInterval = time.Second
	// retry is how long to wait after the host could not be asked, or a status could not be written.
	retry = 5 * time.Second
	// recheck is how often rights and policies are checked that are as they have to be.
	recheck = time.Minute
	// checkTimeout limits one check, so that it does not delay the other ResourceSyncs.
	checkTimeout = 10 * time.Second
	// firstRead limits how long the start of a platform waits. If the host doesn't answer, spaces begin without.
	firstRead = 5 * time.Second
)

// Options are what Syncs need. Functions must be safe for concurrent use, except Declare. All but Secure and Missing are
// required.
type Options struct {
	// Forces reports whether a definition is shared with mode Forced, and ForcedIn whether it is so with a space; and whether that is known.
	Forces   func(name string) (forced, known bool)
	ForcedIn func(space, name string) (forced, known bool)
	// Secure is called for a declaration that syncs to the host. It writes its policy on the host, or checks that, and
	// returns why the host doesn't have them. It is called again every minute, and soon after an error. If it is not set, nothing is
	// synced to the host.
	Secure func(context.Context, *declaration.Declaration) error
	// Missing reports whether an error of Secure says that the host doesn't have the rights or the policy, which ends the sync. Other errors
	// are of a host that can't be asked now, and end nothing. If it is not set, all are such.
	Missing func(error) bool
	// Declare watches the host's objects of exactly these declarations, and DeclaredReady returns why those of one are not known yet.
	Declare       func([]*declaration.Declaration) error
	DeclaredReady func(name string) error
	Logger        klog.Logger
}

// Syncs are the ResourceSyncs of the host, and what spaces have of them. It is safe for concurrent use.
type Syncs struct {
	options Options
	pending chan struct{} // of capacity 1: something has changed
	read    chan struct{} // closed when spaces have what the first lists say

	mu       sync.Mutex
	listed   map[string]bool                   // of what there was a list: syncs, and definitions
	syncs    map[string]*v1alpha1.ResourceSync // by name
	versions map[string]string                 // resource versions of the host's definitions, by name
	states   map[string]*state                 // of syncs, by name; those of which nothing is known yet are missing
	spaces   map[string]*spaceSyncs

	host    client.Client      // set by Run, and not changed afterward
	objects metadata.Interface // as host
	begun   map[string]bool    // names of syncs whose objects name Services, and may be on the host

	// Only follow uses these.
	declared map[string]string // versions of what the host watches, by name
	written  map[string]written
	clean    map[string]cleaned // by the names of syncs
	watches  atomic.Uint64      // how many declarations were new
}

// nextWatch returns the number of a declaration that is watched anew.
func (s *Syncs) nextWatch() uint64 { return s.watches.Add(1) }

// What is listed.
const (
	listOfSyncs       = "syncs"
	listOfDefinitions = "definitions"
)

// New returns syncs of which nothing was read.
func New(o Options) *Syncs {
	if o.Missing == nil {
		o.Missing = func(error) bool { return false }
	}
	return &Syncs{
		options: o, pending: make(chan struct{}, 1), read: make(chan struct{}), listed: map[string]bool{}, syncs: map[string]*v1alpha1.ResourceSync{},
		versions: map[string]string{}, states: map[string]*state{}, spaces: map[string]*spaceSyncs{}, begun: map[string]bool{}, clean: map[string]cleaned{}, written: map[string]written{},
	}
}

// Run watches the host until stop is called. It returns when spaces have what is synced of them, or after a few seconds. It may be called
// once. The scheme of the client must have the API of Berth. The objects are the host's custom resources: those that name Services may be
// deleted. changed is called for each space whose [Syncs.Version] has changed, and must return at once.
func (s *Syncs) Run(ctx context.Context, host client.WithWatch, objects metadata.Interface, changed func(space string)) (stop func()) {
	s.host, s.objects = host, objects
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	safego.Go(&group, "watch ResourceSyncs", func() { s.watchSyncs(watching, host) }, nil)
	safego.Go(&group, "watch definitions of the host", func() { s.watchDefinitions(watching, host) }, nil)
	safego.Go(&group, "follow ResourceSyncs", func() { s.follow(watching, host, changed) }, nil)
	limit := time.NewTimer(firstRead)
	defer limit.Stop()
	select {
	case <-s.read:
	case <-ctx.Done():
	case <-limit.C:
		s.options.Logger.Error(nil, "Could not read all that ResourceSyncs sync from the host yet; spaces begin without", "after", firstRead)
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// Note has everything checked again soon, because something has changed that decides about it, such as a CRDShare. It does not block.
func (s *Syncs) Note() {
	select {
	case s.pending <- struct{}{}:
	default:
	}
}

// watchSyncs watches the ResourceSyncs until ctx ends.
func (s *Syncs) watchSyncs(ctx context.Context, host client.WithWatch) {
	hostwatch.Objects(ctx, host, "resource syncs", &v1alpha1.ResourceSync{}, func() client.ObjectList { return &v1alpha1.ResourceSyncList{} },
		&hostwatch.Store[*v1alpha1.ResourceSync, *v1alpha1.ResourceSync]{
			Value: func(sync *v1alpha1.ResourceSync) *v1alpha1.ResourceSync { return sync },
			Change: func(listed bool, change func(map[string]*v1alpha1.ResourceSync)) {
				s.watched(listed, listOfSyncs, func() { s.follows(func() { change(s.syncs) }) })
			},
		})
}

// watchDefinitions watches the metadata of the host's definitions until ctx ends.
func (s *Syncs) watchDefinitions(ctx context.Context, host client.WithWatch) {
	hostwatch.Definitions(ctx, host, "definitions to sync", &hostwatch.Store[*metav1.PartialObjectMetadata, string]{
		Value: func(definition *metav1.PartialObjectMetadata) string { return definition.ResourceVersion },
		Change: func(listed bool, change func(map[string]string)) {
			s.watched(listed, listOfDefinitions, func() { change(s.versions) })
		},
	})
}

// watched changes what is watched.
func (s *Syncs) watched(listed bool, list string, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.listed[list] = s.listed[list] || listed
	s.Note()
}

func (s *Syncs) follow(ctx context.Context, host client.Client, changed func(space string)) {
	var first sync.Once
	var again <-chan time.Time
	for {
		noted := false
		select {
		case <-ctx.Done():
			return
		case <-s.pending:
			noted = true
			settle := time.NewTimer(settleTime)
			select {
			case <-ctx.Done():
				settle.Stop()
				return
			case <-settle.C:
			}
		case <-again:
		}
		again = nil
		// A panic must not end the sync of the others.
		err := safego.Call("follow ResourceSyncs", func() error {
			complete, pause := s.update(ctx, host, time.Now(), noted, changed)
			if complete {
				first.Do(func() { close(s.read) })
			}
			if pause > 0 {
				again = time.After(pause)
			}
			return nil
		})
		if err != nil {
			again = time.After(retry)
		}
	}
}

// update checks what has changed, has the host's objects watched, gives spaces what is ready, and writes the statuses. It does nothing, and
// isn't complete, until everything was listed. It isn't complete either while something can't be read. It has to be done again after the
// pause, if that is not 0. Unless something was noted, spaces have something else only if a declaration came into force, or ended.
func (s *Syncs) update(ctx context.Context, host client.Client, now time.Time, noted bool, changed func(space string)) (complete bool, pause time.Duration) {
	s.mu.Lock()
	complete = s.listed[listOfSyncs] && s.listed[listOfDefinitions]
	syncs, versions, before := maps.Clone(s.syncs), maps.Clone(s.versions), s.states
	s.mu.Unlock()
	if !complete {
		return false, 0
	}
	states := s.check(ctx, host, now, syncs, versions, before)
	if ctx.Err() != nil {
		return false, 0 // what could not be read then says nothing
	}
	s.declare(states)
	s.mu.Lock()
	s.states = states
	for name, is := range states {
		if is.inForce != nil && is.inForce.NamesServices { // before a space has it
			s.begun[name] = true
		}
	}
	var all []string
	if noted || !maps.EqualFunc(before, states, func(a, b *state) bool { return a.inForce == b.inForce }) {
		all = s.giveAll()
	}
	s.mu.Unlock()
	for _, space := range all {
		changed(space)
	}
	pause = s.writeStatuses(ctx, host, now, syncs, states)
	pause = sooner(pause, s.removeStrays(ctx, now, syncs))
	for _, is := range states {
		complete = complete && !is.unsettled()
		pause = sooner(pause, is.pause(now))
	}
	return complete, pause
}

// sooner returns the shorter of two pauses, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// check returns the states of all ResourceSyncs. Each is checked on its own, so that one that takes long, or fails, doesn't affect others.
func (s *Syncs) check(ctx context.Context, host client.Client, now time.Time, syncs map[string]*v1alpha1.ResourceSync, versions map[string]string, before map[string]*state) map[string]*state {
	var mu sync.Mutex
	var group sync.WaitGroup
	after := make(map[string]*state, len(syncs))
	for name, sync := range syncs {
		forced, known := s.options.Forces(name)
		of := subject{uid: sync.UID, generation: sync.Generation, definition: versions[name], forced: forced, known: known, missing: missing(sync, syncs)}
		if was := before[name]; was != nil && was.of == of && now.Before(was.next) {
			is := *was
			mu.Lock()
			after[name] = &is
			mu.Unlock()
			continue
		}
		safego.Go(&group, "check a ResourceSync", func() {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			is := s.checkOne(limited, host, sync, of).after(before[name], now, s.nextWatch)
			mu.Lock()
			defer mu.Unlock()
			after[name] = is
		}, func(err error) {
			is := (&state{of: of, problem: problem{v1alpha1.ReasonInvalidSpec, err.Error(), true}}).after(before[name], now, s.nextWatch)
			mu.Lock()
			defer mu.Unlock()
			after[name] = is
		})
	}
	group.Wait()
	return after
}

// declare has the host's objects watched, and notes which are known.
func (s *Syncs) declare(states map[string]*state) {
	var all []*declaration.Declaration
	versions := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if d := states[name].watched; d != nil {
			all = append(all, d)
			versions[name] = declaration.WatchedVersions([]*declaration.Declaration{d})
		}
	}
	var failed error
	if !maps.Equal(versions, s.declared) {
		if failed = s.options.Declare(all); failed == nil {
			s.declared = versions
		}
	}
	for name, is := range states {
		if is.checked == nil || is.checked == is.inForce {
			continue
		}
		is.unready = failed
		if failed == nil {
			is.unready = s.options.DeclaredReady(name)
		}
		if is.unready == nil {
			is.inForce = is.checked
		}
	}
}
