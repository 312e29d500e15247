// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"errors"
	"net/netip"
	"runtime"

	"golang.org/x/sync/semaphore"
	"gopkg.in/go-jose/go-jose.v2/jwt"
)

// These limit how many signature checks may wait: in total, of one space, and of one client of a space. A check takes a tenth of
// a millisecond.
const (
	maxChecks          = 256
	maxChecksPerSpace  = 64
	maxChecksPerClient = 16
)

// signatures check the signatures of tokens. They are safe for concurrent use.
type signatures struct {
	keys    *keys
	waiting *slots
	checks  *semaphore.Weighted
}

func newSignatures(k *keys) *signatures {
	return &signatures{
		keys: k, waiting: newSlots(maxChecks, maxChecksPerSpace, maxChecksPerClient),
		// Checks of unknown tokens must leave processors to other requests.
		checks: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
	}
}

// mayBeGood reports whether the host has signed the token, or its keys can't be read. Whether the token is still valid is for
// the host to decide.
func (s *signatures) mayBeGood(space string, client netip.Prefix, token string) (bool, error) {
	if !s.waiting.take(space, client) {
		return false, ErrBusy
	}
	defer s.waiting.give(space, client, 0)
	parsed, err := jwt.ParseSigned(token)
	if err != nil || len(parsed.Headers) == 0 {
		return false, nil //nolint:nilerr // it is not a token
	}
	key, err := s.keys.key(parsed.Headers[0].KeyID)
	switch {
	case errors.Is(err, errNoKeys):
		return true, nil
	case err != nil || key == nil:
		return false, err
	}
	if err := s.checks.Acquire(context.Background(), 1); err != nil {
		return false, ErrBusy
	}
	defer s.checks.Release(1)
	return parsed.Claims(key, &jwt.Claims{}) == nil, nil
}
