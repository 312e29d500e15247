// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// reviewTimeout is how long a review by the host may take.
	reviewTimeout = 5 * time.Second
	// provenFor and refusedFor are how long the results are used. The host's API server itself uses a good result for ten seconds.
	provenFor  = 5 * time.Second
	refusedFor = 10 * time.Second
	// rememberedProven and rememberedRefused are how many results are remembered. Only the host can make a token proven.
	rememberedProven  = 4096
	rememberedRefused = 4096

	// These limit the reviews of tokens that the host has not proven yet: in total, of one space, and of one client of a space.
	maxReviews          = 32
	maxReviewsPerSpace  = 8
	maxReviewsPerClient = 4
	// refusedPause is how long a token that was refused keeps its slot. So a flood of forged tokens for one space reaches the host
	// 16 times a second while its keys can't be read; otherwise, it does not reach the host.
	refusedPause = 500 * time.Millisecond
	// maxRenewals and maxRenewalsPerSpace limit the reviews of tokens that were proven before, which no flood of others holds up.
	maxRenewals         = 64
	maxRenewalsPerSpace = 16

	// logInterval is how often at most a failing host is logged.
	logInterval = time.Minute
)

var (
	// ErrBusy is returned if too many tokens are being reviewed. The client may retry.
	ErrBusy = errors.New("too many tokens of the host are being reviewed")
	// ErrHost is returned if the host does not review a token. The client may retry.
	ErrHost = errors.New("the host can't review tokens now")
)

// reviews are the reviews of tokens by the host. They are safe for concurrent use.
type reviews struct {
	host   client.Client
	clock  clock.PassiveClock
	logger klog.Logger

	flights         singleflight.Group
	signatures      *signatures
	proven, refused *lru.Cache // map [sha256.Size]byte to result
	unproven, known *slots

	mu     sync.Mutex
	logged time.Time
}

// result is that of a review.
type result struct {
	user string // "" if the token is refused
	at   time.Time
}

func newReviews(host client.Client, api rest.Interface, c clock.PassiveClock, logger klog.Logger) *reviews {
	return &reviews{
		host: host, clock: c, logger: logger,
		signatures: newSignatures(&keys{host: api, clock: c, logger: logger}),
		proven:     lru.New(rememberedProven), refused: lru.New(rememberedRefused),
		unproven: newSlots(maxReviews, maxReviewsPerSpace, maxReviewsPerClient),
		known:    newSlots(maxRenewals, maxRenewalsPerSpace, maxRenewals),
	}
}

// review returns the user of a token; "" if the host refuses the token.
func (v *reviews) review(space string, client netip.Prefix, token string) (user string, err error) {
	key := sha256.Sum256([]byte(token))
	remembered, wasProven, ok := v.remembered(key)
	if ok {
		return remembered, nil
	}
	reviewed, err, _ := v.flights.Do(string(key[:]), func() (any, error) {
		user, _, ok := v.remembered(key) // by a review that has ended just now
		if ok {
			return user, nil
		}
		limit := v.known
		if !wasProven {
			limit = v.unproven
			if good, err := v.signatures.mayBeGood(space, client, token); err != nil || !good {
				return "", err
			}
		}
		if !limit.take(space, client) {
			return "", ErrBusy
		}
		var pause time.Duration
		defer func() { limit.give(space, client, pause) }()
		user, err := v.ask(token)
		if err != nil {
			return "", err
		}
		if user == "" && !wasProven { // former owners may have many requests, which all have to end soon
			pause = refusedPause
		}
		v.remember(key, user)
		return user, nil
	})
	if err != nil {
		return "", err
	}
	return reviewed.(string), nil
}

// remembered returns the result of a review that can still be used. wasProven reports whether the last review proved the token.
func (v *reviews) remembered(key [sha256.Size]byte) (user string, wasProven, ok bool) {
	now := v.clock.Now()
	if found, ok := v.refused.Get(key); ok && now.Sub(found.(result).at) < refusedFor {
		return "", false, true
	}
	found, wasProven := v.proven.Get(key)
	if !wasProven {
		return "", false, false
	}
	return found.(result).user, true, now.Sub(found.(result).at) < provenFor
}

func (v *reviews) remember(key [sha256.Size]byte, user string) {
	one := result{user, v.clock.Now()}
	if user == "" {
		v.proven.Remove(key)
		v.refused.Add(key, one)
		return
	}
	v.refused.Remove(key)
	v.proven.Add(key, one)
}

// ask asks the host. The request of a client that gives up doesn't end it, because others may wait for the result.
func (v *reviews) ask(token string) (user string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{v1alpha1.TokenAudience}}}
	if err := v.host.Create(ctx, review); err != nil {
		v.log(err)
		return "", ErrHost
	}
	// A host that does not know audiences names none: then the token may be for another component.
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, v1alpha1.TokenAudience) {
		return "", nil
	}
	return review.Status.User.Username, nil
}

// log logs that the host fails. Clients can make that happen often.
func (v *reviews) log(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.clock.Now(); now.Sub(v.logged) >= logInterval {
		v.logged = now
		v.logger.Error(fmt.Errorf("review a token: %w", err), "Host does not review tokens, so its ServiceAccounts can't use their spaces; check the right to create tokenreviews")
	}
}
