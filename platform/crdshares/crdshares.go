// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdshares gives the spaces of a platform the CustomResourceDefinitions that CRDShares of the host share with them (C2, C3),
// whether the spaces sleep or not. The manager calls it. It never talks to a space: a space follows its [definitions.Source].
package crdshares

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	// settleTime is how long a change waits for the next one.
	settleTime = 100 * time.Millisecond
	// retry is how long to wait after a definition could not be read, or a status could not be written.
	retry = 5 * time.Second
	// firstRead limits how long the start of a platform waits for the shares. If the host doesn't give them, spaces begin without.
	firstRead = 5 * time.Second
)

// Shares are the CRDShares of the host, and what spaces have of them. It is safe for concurrent use.
type Shares struct {
	logger  klog.Logger
	pending chan struct{} // of capacity 1: something has changed
	read    chan struct{} // closed when spaces have what the first lists say

	mu       sync.Mutex
	listed   map[string]bool               // of what there was a list: shares, and definitions
	shares   map[string]*v1alpha1.CRDShare // by name
	versions map[string]string             // resource versions of the host's definitions, by name
	spaces   map[string]Subject
	sources  map[string]*definitions.Source // of spaces
	served   map[string]*served             // by name
}

// served is a definition of the host as spaces have it. Spaces share the pointers.
type served struct {
	version          string   // of the host's definition
	stored           []string // the versions in which spaces may have stored objects
	share            string   // the UID of the share
	forced, optional *definitions.Shared
	reason, message  string // why it isn't served
}

// New returns shares of which nothing was read.
func New(logger klog.Logger) *Shares {
	return &Shares{
		logger: logger, pending: make(chan struct{}, 1), read: make(chan struct{}), listed: map[string]bool{},
		shares: map[string]*v1alpha1.CRDShare{}, versions: map[string]string{}, spaces: map[string]Subject{},
		sources: map[string]*definitions.Source{}, served: map[string]*served{},
	}
}

// Run watches the host until stop is called. It returns when spaces have what is shared with them, or after a few seconds. It may be
// called once. The client's scheme must have the API of Berth. changed is called when spaces may have other definitions than before, and
// must return at once.
func (s *Shares) Run(ctx context.Context, host client.WithWatch, changed func(context.Context)) (stop func()) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	safego.Go(&group, "watch CRDShares", func() { s.watchShares(watching, host) }, nil)
	safego.Go(&group, "watch definitions of the host", func() { s.watchDefinitions(watching, host) }, nil)
	safego.Go(&group, "share definitions", func() { s.follow(watching, host, changed) }, nil)
	limit := time.NewTimer(firstRead)
	defer limit.Stop()
	select {
	case <-s.read:
	case <-ctx.Done():
	case <-limit.C:
		s.logger.Error(nil, "Could not read the CRDShares from the host yet; spaces begin without shared definitions", "after", firstRead)
	}
	return func() {
		cancel()
		group.Wait()
	}
}

func (s *Shares) follow(ctx context.Context, host client.WithWatch, changed func(context.Context)) {
	var first sync.Once
	var failed <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.pending:
		case <-failed:
		}
		settle := time.NewTimer(settleTime)
		select {
		case <-ctx.Done():
			settle.Stop()
			return
		case <-settle.C:
		}
		failed = nil
		complete, again := s.update(ctx, host)
		if complete { // otherwise, dedicated spaces keep what they have
			first.Do(func() { close(s.read) })
		}
		changed(ctx)
		if again {
			failed = time.After(retry)
		}
	}
}

// note has what spaces have updated.
func (s *Shares) note() {
	select {
	case s.pending <- struct{}{}:
	default:
	}
}

// update reads definitions that have changed, gives them to spaces, and writes the statuses. It does nothing, and isn't complete, until
// everything was listed. Without a definition that could not be read yet, it isn't complete either. It has to be done again if something
// fails.
func (s *Shares) update(ctx context.Context, host client.WithWatch) (complete, again bool) {
	s.mu.Lock()
	complete = s.listed[listOfShares] && s.listed[listOfDefinitions]
	shares, versions, before := maps.Clone(s.shares), maps.Clone(s.versions), s.served
	s.mu.Unlock()
	if !complete {
		return false, false
	}
	after := map[string]*served{}
	for name, share := range shares {
		have := before[name]
		if have == nil || !have.isOf(share, versions[name]) {
			have = serve(ctx, host, share, versions[name]).orAsBefore(have)
		}
		after[name] = have
		again = again || have.reason == v1alpha1.ReasonDefinitionUnavailable
		complete = complete && (have.optional != nil || have.reason != v1alpha1.ReasonDefinitionUnavailable)
	}
	s.mu.Lock()
	s.served = after
	for name := range s.sources {
		s.set(name)
	}
	statuses := s.statuses()
	s.mu.Unlock()
	for name, status := range statuses {
		if err := write(ctx, host, shares[name], status); err != nil && ctx.Err() == nil {
			s.logger.Error(err, "Could not write the status of a CRDShare; Berth retries", "share", name)
			again = true
		}
	}
	return complete, again
}

// isOf reports whether a definition needn't be read again.
func (s *served) isOf(share *v1alpha1.CRDShare, version string) bool {
	return s.version == version && s.share == string(share.UID) && s.reason != v1alpha1.ReasonDefinitionUnavailable &&
		(s.stored == nil || slices.Equal(s.stored, share.Status.StoredVersions))
}

// orAsBefore keeps what spaces have of a definition that can't be read now, or that changed in nothing that they serve, such as its
// status or a label: then no space may switch.
func (s *served) orAsBefore(before *served) *served {
	if before == nil || before.share != s.share || before.optional == nil {
		return s
	}
	same := s.optional != nil && definitions.SameContent(s.optional.CRD, before.optional.CRD)
	switch {
	case s.reason == v1alpha1.ReasonDefinitionUnavailable, same && definitions.SameWebhook(s.optional.Webhook, before.optional.Webhook):
		s.forced, s.optional = before.forced, before.optional
	case same: // what spaces have stays in memory once
		s.offer(before.optional.CRD, s.optional.Webhook)
	}
	return s
}

// offer makes what spaces have of a definition.
func (s *served) offer(crd *apiextensionsv1.CustomResourceDefinition, webhook *definitions.Webhook) {
	s.forced = &definitions.Shared{CRD: crd, Webhook: webhook, Forced: true, InRange: true}
	s.optional = &definitions.Shared{CRD: crd, Webhook: webhook, InRange: true}
}

// set gives a space what is shared with it. While that isn't known, it keeps what it has. The caller holds mu.
func (s *Shares) set(space string) {
	if set, known := s.setOf(space); known {
		s.sources[space].Set(set)
	}
}

// setOf returns what is shared with a space, and whether all of that is known. The caller holds mu.
func (s *Shares) setOf(space string) (set *definitions.Set, known bool) {
	of, seen := s.spaces[space]
	if !seen || !s.listed[listOfShares] || !s.listed[listOfDefinitions] {
		return nil, false
	}
	var all []*definitions.Shared
	for name, share := range s.shares {
		if !of.SelectedBy(share.Spec.Tenants) {
			continue
		}
		is := s.served[name]
		switch {
		case is == nil || is.optional == nil && is.reason == v1alpha1.ReasonDefinitionUnavailable:
			return nil, false
		case is.optional == nil: // it can't be shared
		case share.Spec.Mode == v1alpha1.ForcedCRD:
			all = append(all, is.forced)
		default:
			all = append(all, is.optional)
		}
	}
	return definitions.NewSet("", all...), true
}

// Source returns the source of a space. It is the same until [Shares.Forget].
func (s *Shares) Source(space string) *definitions.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := s.sources[space]
	if source == nil {
		source = &definitions.Source{}
		s.sources[space] = source
		s.set(space)
	}
	return source
}

// Set returns what is shared with a space, and whether that is known.
func (s *Shares) Set(space string) (set *definitions.Set, known bool) {
	select {
	case <-s.read:
	default:
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setOf(space)
}

// Forces reports whether the host's definition of a name is shared with mode Forced, and whether that is known: until the host has been
// read, it isn't.
func (s *Shares) Forces(name string) (forced, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forces(name)
}

// forces does what Forces says. The caller holds mu.
func (s *Shares) forces(name string) (forced, known bool) {
	if !s.listed[listOfShares] || !s.listed[listOfDefinitions] {
		return false, false
	}
	share, is := s.shares[name], s.served[name]
	switch {
	case share == nil || share.Spec.Mode != v1alpha1.ForcedCRD:
		return false, true
	case is == nil || is.share != string(share.UID): // it was created just now
		return false, false
	case is.forced == nil:
		return false, is.reason != v1alpha1.ReasonDefinitionUnavailable
	default:
		return true, true
	}
}

// ForcedIn reports whether the definition of a name is shared with a space with mode Forced, and whether that is known.
func (s *Shares) ForcedIn(space, name string) (forced, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, seen := s.spaces[space]
	if forced, known := s.forces(name); !forced || !known || !seen {
		return false, known && (seen || !forced)
	}
	return of.SelectedBy(s.shares[name].Spec.Tenants), true
}

// Observe notes what an object says of its space, and changes what the space has at once if that makes a difference.
func (s *Shares) Observe(object *v1alpha1.Space) {
	is := SubjectOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.spaces[object.Name]
	if known && was.Equal(is) {
		return
	}
	s.spaces[object.Name] = is
	if s.sources[object.Name] != nil {
		s.set(object.Name)
	}
	s.note() // for dedicated spaces
}

// Forget forgets a deleted space.
func (s *Shares) Forget(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spaces, space)
	delete(s.sources, space)
}
