// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"net/http"
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
}

type session struct {
	request    *http.Request
	attributes authorizer.Attributes
	end        context.CancelFunc
}

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

// Run ends sessions whenever the state or what the space grants visitors changes, and when a grant expires, until ctx ends.
func (t *Tenancy) Run(ctx context.Context) {
	for {
		_, changed := t.grants.Watch()
		shared := t.grants.SharedChanged()
		t.CheckSessions()
		expiry, stop := untilExpiry(t.grants.Grants())
		select {
		case <-changed:
		case <-shared:
		case <-expiry:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// untilExpiry returns a channel that receives when the next of the grants has expired.
func untilExpiry(grants []access.Grant) (expired <-chan time.Time, stop func()) {
	now := time.Now()
	next := access.NextExpiry(grants, now)
	if next.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(min(next.Sub(now), longestWait))
	return timer.C, func() { timer.Stop() }
}

// longestWait is after how long it is looked again, so that it is noticed when the system clock jumps.
const longestWait = time.Minute

// CheckSessions ends the long-running requests from outside whose clients have lost the right to make them.
func (t *Tenancy) CheckSessions() { t.sessions.check() }

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
	}
}

func (s *sessions) check() {
	s.mu.Lock()
	all := make([]*session, 0, len(s.open))
	for one := range s.open {
		all = append(all, one)
	}
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
	if decision, _, err := s.authorizer.Authorize(ctx, one.attributes); err == nil && decision != authorizer.DecisionAllow {
		one.end()
	}
}
