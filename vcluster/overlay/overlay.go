// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
)

// marker is the key of the version of the set that the space's API server has served last. Its revision is that of the last change of
// what is in force.
const marker = "/berth/definitions"

// onlySynced begins the value of the marker if the platform shared nothing except definitions that it forces because it syncs their
// objects. These are known when a space starts.
const onlySynced = "synced "

// markOf returns the value of the marker for a set; "" if it has no definitions.
func markOf(set *definitions.Set) string {
	if len(set.Names()) > 0 && !set.HasShares() {
		return onlySynced + set.Version()
	}
	return set.Version()
}

const (
	// retry is how long a change that can't be written waits for the next attempt.
	retry = time.Second
	// switchPause is how long after a switch a change of the policy waits: each watch of definitions follows a switch, and a tenant may
	// have many, and may change its policy as often as it likes.
	switchPause = time.Second
)

// Space is the overlay of one space while it is awake.
type Space struct {
	source  *definitions.Source
	store   *kubernetes.Client
	account *bounds.Account
	policy  chan struct{} // of capacity 1: the policy may have changed

	mu       sync.RWMutex // held for writing while what is in force changes
	set      *definitions.Set
	revision int64    // from which on it is in force
	loaded   int64    // revision of the marker when the space started
	kept     []string // names that were shared when it started, if the marker was not written then; sorted
	watches  map[*definitionWatch]struct{}
	charged  int64 // bytes of shared definitions that the account has

	marking sync.Mutex // held while the marker is written

	switchCount      atomic.Int64 // counts how often the definition of a name got another owner
	ownersMu         sync.Mutex
	definitionOwners map[string]*definitionOwner
	unmoved          map[string]bool // names of definitions some of whose objects could not be moved
}

// awaitShared limits how long the start of a space waits until it is known what the platform shares.
const awaitShared = 30 * time.Second

var errUnknown = errors.New(
	"the platform has not read from the host yet which CustomResourceDefinitions it shares with this space; retry, and see the log of the platform if it stays so")

// New returns the overlay of a space whose store is store. The account may be nil.
func New(source *definitions.Source, store *kubernetes.Client, account *bounds.Account) *Space {
	return &Space{
		source: source, store: store, account: account, policy: make(chan struct{}, 1), watches: map[*definitionWatch]struct{}{}, definitionOwners: map[string]*definitionOwner{},
	}
}

// Load lays the current set over the store. It must be called before anything is read. If there were shared definitions when the space ran
// last, it waits until it is known which there are now: a forced one must not lapse when the platform restarts.
//
// If what is in force has changed since the space slept, watches from before expire. Objects of definitions that Berth has copied into the
// space are moved before; see moveCopies.
func (s *Space) Load(ctx context.Context) error {
	had, err := s.store.Kubernetes.Get(ctx, marker, kubernetes.GetOptions{})
	if err != nil {
		return fmt.Errorf("read which shared definitions were in force: %w", err)
	}
	var before string
	if had.KV != nil {
		before = string(had.KV.Value)
	}
	if before != "" && !strings.HasPrefix(before, onlySynced) {
		limited, cancel := context.WithTimeoutCause(ctx, awaitShared, errUnknown)
		defer cancel()
		if err := s.source.Await(limited); err != nil {
			return err
		}
	}
	set, _, err := s.wanted(ctx)
	if err != nil {
		return err
	}
	moved := s.moveCopies(ctx, set)
	s.mu.Lock()
	defer s.mu.Unlock()
	if had.KV != nil {
		s.loaded = had.KV.ModRevision
	}
	if before == markOf(set) && !moved {
		s.kept = set.Names()
	} else {
		revision, err := s.mark(ctx, set)
		if err != nil {
			// A full disk must not keep the space asleep. Only watches that began before it slept could miss the change.
			klog.FromContext(ctx).Error(err, "Could not note which shared definitions are in force; clients may have to list again")
		}
		s.loaded = max(s.loaded, revision)
	}
	s.revision = s.loaded
	s.take(set)
	return nil
}

// Run follows the source, and the policy, until ctx ends.
func (s *Space) Run(ctx context.Context) {
	for ctx.Err() == nil {
		set, changed, err := s.wanted(ctx)
		if err == nil {
			err = s.follow(ctx, set)
		}
		next := time.NewTimer(switchPause)
		var again <-chan time.Time
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Could not change which shared definitions are in force; Berth retries")
			changed, again = nil, time.After(retry)
		case s.hasUnmoved():
			again = time.After(moveRetry)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.policy:
			select {
			case <-ctx.Done():
			case <-next.C:
			}
		case <-again:
			if err == nil {
				s.moveCopies(ctx, set)
			}
		}
	}
}

func (s *Space) follow(ctx context.Context, set *definitions.Set) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set.Version() == set.Version() {
		s.set = set
		return nil
	}
	revision, err := s.mark(ctx, set)
	if err != nil {
		return err
	}
	s.revision = revision
	s.take(set)
	for w := range s.watches {
		w.notify()
	}
	return nil
}

// mark writes the marker, and returns its new revision: everything that was read before is older. With an error, it returns the revision
// of the store, if that is known: nothing that was read before is newer.
func (s *Space) mark(ctx context.Context, set *definitions.Set) (revision int64, err error) {
	s.marking.Lock()
	defer s.marking.Unlock()
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	had, err := s.store.Kubernetes.Get(ctx, marker, kubernetes.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read which shared definitions were in force: %w", err)
	}
	if had.KV != nil {
		revision = had.KV.ModRevision
	}
	put, err := s.store.Kubernetes.OptimisticPut(ctx, marker, []byte(markOf(set)), revision, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil {
		return had.Revision, fmt.Errorf("write which shared definitions are in force: %w", err)
	}
	if !put.Succeeded {
		return had.Revision, errors.New("write which shared definitions are in force: another process writes it, too")
	}
	return put.Revision, nil
}

// remark writes the marker although the set stays.
func (s *Space) remark(ctx context.Context) (revision int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mark(ctx, s.set)
}

// take replaces the set, and has the account have what its definitions take. The caller holds mu.
func (s *Space) take(set *definitions.Set) {
	var size int64
	for _, name := range set.Names() {
		size += set.Of(name).Size()
	}
	if s.account != nil {
		s.account.Add(bounds.CachedBytes, size-s.charged)
	}
	s.set, s.charged = set, size
}

// current returns the set, and the revision from which on it is in force.
func (s *Space) current() (set *definitions.Set, since int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.set, s.revision
}

// Close gives back what the account has.
func (s *Space) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(nil)
}
