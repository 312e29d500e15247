// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// errNoSpace means that a call has lost, or never had, the space it is for. It
// must fail: there is no storage that it could mean.
var errNoSpace = errors.New("internal error: the call's context bears no space")

// Space is a control plane, as the shared handlers see it. Its fields must not
// change once a request bears it.
type Space struct {
	Admission     admission.Interface
	Authorizer    authorizer.Authorizer
	RuleResolver  authorizer.RuleResolver
	Authenticator authenticator.Request
	// Loopback calls the space's API in process.
	Loopback http.RoundTripper
	// Usage of the space's pods; nil if nothing is known of it.
	Usage Usage
	// TenantQuota returns what the space may know of the quota of its tenant; nil if it has none.
	TenantQuota TenantQuotaReport
	// CRDMatches returns which definitions are in force; nil if no platform shares any with the space.
	CRDMatches CRDMatches
	// NewStorage opens the storage of a resource. It is called once for each
	// that is used.
	NewStorage func(Resource) (storage.Interface, error)
	// Own returns the space's own registry of a resource that keeps state beyond
	// its storage, one of those of [OwnResources].
	Own func(schema.GroupVersionResource) (rest.Storage, error)

	mu       sync.RWMutex
	storages map[*dispatcher]storage.Interface
}

type spaceKey struct{}

// WithSpace returns a context for requests to s, whatever ctx bore before.
func WithSpace(ctx context.Context, s *Space) context.Context {
	return context.WithValue(ctx, spaceKey{}, s)
}

func spaceOf(ctx context.Context) (*Space, error) {
	if s, ok := ctx.Value(spaceKey{}).(*Space); ok && s != nil {
		return s, nil
	}
	return nil, errNoSpace
}

// storage returns the space's storage of d's resource.
func (s *Space) storage(d *dispatcher) (storage.Interface, error) {
	s.mu.RLock()
	opened := s.storages[d]
	s.mu.RUnlock()
	if opened != nil {
		return opened, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened := s.storages[d]; opened != nil {
		return opened, nil
	}
	opened, err := s.NewStorage(d.resource)
	if err != nil {
		return nil, err
	}
	if s.storages == nil {
		s.storages = map[*dispatcher]storage.Interface{}
	}
	s.storages[d] = opened
	return opened, nil
}
