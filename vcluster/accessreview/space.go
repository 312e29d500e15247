// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package accessreview

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// timeout limits how long the webhook may take.
	timeout = 5 * time.Second
	// remembered is how many answers are remembered for each space. Each takes some 500 bytes.
	remembered = 1024
	// maxReason limits the reasons that are remembered, in bytes.
	maxReason = 256
	// maxAsked limits what is asked, in bytes of names: the user in a SubjectAccessReview may be as large as a request.
	maxAsked = 8 << 10
	// maxAll, maxRest, and maxSpace limit how many requests the webhook gets at once: from all spaces, from all spaces but the first request
	// of each, and from one space. So a few spaces can't take all places.
	maxAll, maxRest, maxSpace = 64, 32, 8
	// failedPause is how long a space doesn't ask again after the webhook has failed.
	failedPause = time.Second
)

// Keys of the extra fields that tell the webhook of the space. A client can't set them.
const (
	// extraTenant has the tenant of the user.
	extraTenant = "berth.dev/tenant"
	// extraSpace has the name of the space, and extraSpaceTenant its tenant.
	extraSpace, extraSpaceTenant = "berth.dev/space", "berth.dev/space-tenant"
)

var (
	errBusy   = errors.New("ask the webhook that authorizes: the space is asking it too much at once; try again later")
	errFailed = errors.New("ask the webhook that authorizes: it can't be asked now; try again later")
)

func newWebhook(upstream authorizer.Authorizer, allowed, unallowed time.Duration) *Webhook {
	ttl := func(d authorizer.Decision) time.Duration {
		if d == authorizer.DecisionAllow {
			return allowed
		}
		return unallowed
	}
	return &Webhook{upstream: upstream, ttl: ttl, all: limit{most: maxAll}, rest: limit{most: maxRest}}
}

// For returns what decides on requests in a space, which begins to run; nil if there is no webhook. tenant returns the space's tenant now.
func (w *Webhook) For(space string, tenant func() string) authorizer.Authorizer {
	if w == nil {
		return nil
	}
	s := &spaceWebhook{Webhook: w, space: space, tenant: tenant, own: limit{most: maxSpace}, answers: cache.NewLRUExpireCache(remembered)}
	return authorizer.AuthorizerFunc(s.authorize)
}

// spaceWebhook decides on requests in a space.
type spaceWebhook struct {
	*Webhook
	space  string
	tenant func() string

	own     limit
	answers *cache.LRUExpireCache // maps [sha256.Size]byte to answer
	failed  atomic.Int64          // when the webhook failed, in nanoseconds
}

type answer struct {
	decision authorizer.Decision
	reason   string
}

func (s *spaceWebhook) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil || a.GetUser().GetName() == user.Anonymous || inside.Is(ctx) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	asked := s.asked(ctx, a)
	data, err := json.Marshal(asked)
	if err != nil || len(data) > maxAsked {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("the webhook that authorizes is not asked about users and requests with names of more than %d bytes", maxAsked), nil
	}
	key := sha256.Sum256(data)
	if known, ok := s.answers.Get(key); ok {
		return known.(answer).decision, known.(answer).reason, nil
	}
	return s.ask(ctx, key, asked)
}

// asked returns what the webhook is asked. Selectors are left out: they only narrow a request.
func (s *spaceWebhook) asked(ctx context.Context, a authorizer.Attributes) authorizer.AttributesRecord {
	u, tenant := a.GetUser(), s.tenant()
	of := tenant // users that the space itself knows, and those that others impersonate there, are of its tenant
	if who := identity.From(ctx); who != nil && who.Tenant != "" && who.Name == u.GetName() {
		of = who.Tenant
	}
	extra := map[string][]string{}
	for key, values := range u.GetExtra() {
		extra[key] = values
	}
	extra[extraTenant], extra[extraSpace], extra[extraSpaceTenant] = []string{of}, []string{s.space}, []string{tenant}
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra},
		Verb: a.GetVerb(), Namespace: a.GetNamespace(), APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(), Resource: a.GetResource(),
		Subresource: a.GetSubresource(), Name: a.GetName(), ResourceRequest: a.IsResourceRequest(), Path: a.GetPath(),
	}
}

// ask asks the webhook, if there is a place. A client that gives up doesn't end that: it could make the webhook work for nothing.
func (s *spaceWebhook) ask(ctx context.Context, key [sha256.Size]byte, asked authorizer.AttributesRecord) (authorizer.Decision, string, error) {
	if time.Since(time.Unix(0, s.failed.Load())) < failedPause {
		return authorizer.DecisionNoOpinion, "", errFailed
	}
	give, ok := s.take()
	if !ok {
		return authorizer.DecisionNoOpinion, "", errBusy
	}
	defer give()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	decision, reason, err := s.upstream.Authorize(ctx, uncached{asked})
	if err != nil && decision != authorizer.DecisionDeny {
		s.failed.Store(time.Now().UnixNano())
		return authorizer.DecisionNoOpinion, "", errFailed
	}
	reason = reason[:min(len(reason), maxReason)]
	s.answers.Add(key, answer{decision, reason}, s.ttl(decision))
	return decision, reason, nil
}

// take takes a place of each limit, if all have one.
func (s *spaceWebhook) take() (give func(), ok bool) {
	limits := []*limit{&s.own, &s.all}
	if s.own.taken.Load() > 0 {
		limits = append(limits, &s.rest)
	}
	for i, l := range limits {
		if !l.take() {
			for _, before := range limits[:i] {
				before.give()
			}
			return nil, false
		}
	}
	return func() {
		for _, l := range limits {
			l.give()
		}
	}, true
}

// limit limits how many there are at once.
type limit struct {
	most  int64
	taken atomic.Int64
}

func (l *limit) take() bool {
	if l.taken.Add(1) <= l.most {
		return true
	}
	l.taken.Add(-1)
	return false
}

func (l *limit) give() { l.taken.Add(-1) }

// uncached are attributes that upstream's authorizer doesn't remember: its cache is one for all spaces, and keeps up to 8192 requests of
// any size. It measures fields that it doesn't send, too: the path of requests for resources, and the name in others.
type uncached struct{ authorizer.AttributesRecord }

// GetPath implements [authorizer.Attributes].
func (u uncached) GetPath() string {
	if u.ResourceRequest {
		return tooLongToRemember()
	}
	return u.Path
}

// GetName implements [authorizer.Attributes].
func (u uncached) GetName() string {
	if !u.ResourceRequest {
		return tooLongToRemember()
	}
	return u.Name
}

// tooLongToRemember returns a text of more than the 10,000 bytes that upstream remembers.
func tooLongToRemember() string { return strings.Repeat(" ", 16<<10) }
