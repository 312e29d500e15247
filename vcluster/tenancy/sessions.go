// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/inside"
)

// sessions are the requests from outside that last: watches, logs, and connections to pods. An API server authorizes them only at
// their beginning.
type sessions struct {
	source     *access.Source
	authorizer authorizer.Authorizer

	mu   sync.Mutex
	open map[*session]struct{}
	// unsure are those for which the authorizer had an error at the last check. failed says that there are some.
	unsure map[*session]struct{}
	failed chan struct{} // of capacity 1
}

func newSessions() sessions {
	return sessions{open: map[*session]struct{}{}, unsure: map[*session]struct{}{}, failed: make(chan struct{}, 1)}
}

type session struct {
	request    *http.Request
	attributes authorizer.Attributes
	end        context.CancelFunc
}

// ofVisitor reports whether a session is of a user of another tenant, on whom the grants alone decide.
func (s *session) ofVisitor() bool {
	_, visitor := access.VisitorOf(s.attributes.GetUser())
	return visitor
}

func (s *session) others() bool { return !s.ofVisitor() }

// EndRevoked wraps the innermost handler so that a long-running request from outside ends soon after its client has lost the right to
// make it. Its client may try again.
func (t *Tenancy) EndRevoked(isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	if t.grants == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok || inside.Is(r.Context()) || !isLong(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		s := &session{r, attributes, cancel}
		defer t.sessions.add(s)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// RunVisitors ends sessions of users of other tenants whenever the state or what the space grants them changes, and when a grant expires,
// until ctx ends. It waits for no webhook.
func (t *Tenancy) RunVisitors(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := t.grants.Watch()
		accesses := t.grants.TenantAccessesChanged()
		began := time.Now()
		t.sessions.check((*session).ofVisitor)
		expiry, stop := untilExpiry(t.grants, began)
		restAfter(ctx, began)
		select {
		case <-changed:
		case <-accesses:
		case <-expiry:
		case <-ctx.Done():
		}
		stop()
	}
}

// RunOthers ends the other sessions whenever the state changes, until ctx ends. If the authorizer has an error, it asks again.
func (t *Tenancy) RunOthers(ctx context.Context) {
	_, changed := t.grants.Watch()
	t.sessions.check((*session).others)
	for {
		select {
		case <-changed:
			_, changed = t.grants.Watch()
			t.sessions.check((*session).others)
		case <-t.sessions.failed:
			pause(ctx, checkAgain)
			t.sessions.checkUnsure()
		case <-ctx.Done():
			return
		}
	}
}

const (
	// checkAgain is the pause after the authorizer could not say whether a session may go on.
	checkAgain = time.Second
	// shortRest and longRest limit how long nothing is done about a change after work on the one before, which a tenant may cause at will.
	shortRest, longRest = 100 * time.Millisecond, time.Second
)

// restAfter waits after work, so that it takes at most a tenth of the time, unless it is very long.
func restAfter(ctx context.Context, began time.Time) {
	pause(ctx, min(max(9*time.Since(began), shortRest), longRest))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// untilExpiry returns a channel that receives when the next TenantAccess has expired that had not at a time.
func untilExpiry(source *access.Source, at time.Time) (expired <-chan time.Time, stop func()) {
	grants, _ := source.TenantAccesses()
	next := grants.NextExpiry(at)
	if next.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(min(time.Until(next), longestWait))
	return timer.C, func() { timer.Stop() }
}

// longestWait is after how long it is looked again, so that it is noticed when the system clock jumps.
const longestWait = time.Minute

// CheckSessions ends the long-running requests from outside whose clients have lost the right to make them.
func (t *Tenancy) CheckSessions() {
	t.sessions.check((*session).ofVisitor)
	t.sessions.check((*session).others)
}

// add notes a session until the function that it returns is called. The state may have changed since it was authorized.
func (s *sessions) add(one *session) (remove func()) {
	s.mu.Lock()
	s.open[one] = struct{}{}
	s.mu.Unlock()
	if s.source.Rules().Enforces() || identity.From(one.request.Context()) != nil {
		s.checkOne(one)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one)
		delete(s.unsure, one)
	}
}

// check checks those sessions that are of a kind.
func (s *sessions) check(of func(*session) bool) {
	s.mu.Lock()
	var all []*session
	for one := range s.open {
		if of(one) {
			all = append(all, one)
		}
	}
	s.mu.Unlock()
	for _, one := range all {
		s.checkOne(one)
	}
}

// checkUnsure checks those sessions again for which the authorizer had an error.
func (s *sessions) checkUnsure() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.unsure))
	clear(s.unsure)
	s.mu.Unlock()
	for _, one := range all {
		s.checkOne(one)
	}
}

func (s *sessions) checkOne(one *session) {
	ctx := one.request.Context()
	if ctx.Err() != nil {
		return
	}
	if credentials.IsFormerOwners(s.source, one.request) {
		one.end()
		return
	}
	switch decision, _, err := s.authorizer.Authorize(ctx, one.attributes); {
	case decision == authorizer.DecisionAllow:
	case err != nil && decision != authorizer.DecisionDeny:
		s.keepUnsure(one)
	default:
		one.end()
	}
}

// keepUnsure notes that it isn't known whether a session may go on.
func (s *sessions) keepUnsure(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.open[one]; !open {
		return
	}
	s.unsure[one] = struct{}{}
	select {
	case s.failed <- struct{}{}:
	default:
	}
}
