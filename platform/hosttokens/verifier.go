// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/shard/credentials"
)

const (
	// reviewInterval is how often the token of a request that lasts is reviewed again.
	reviewInterval = 30 * time.Second
	// busyPause is how soon, at least, it is tried again while too many tokens are being reviewed.
	busyPause = time.Second
)

// Verifier verifies requests with tokens of the host. It is safe for concurrent use.
type Verifier struct {
	owns     func(space, name string) bool
	clock    clock.PassiveClock
	interval time.Duration
	reviews  *reviews
}

// New returns a verifier. owns reports whether a ServiceAccount of the host owns a space now, which need not exist. host may create
// TokenReviews. api reads the host's keys, if it may.
func New(host client.Client, api rest.Interface, owns func(space, name string) bool, c clock.PassiveClock, logger klog.Logger) *Verifier {
	return &Verifier{owns: owns, clock: c, interval: reviewInterval, reviews: newReviews(host, api, c, logger)}
}

// IsFor reports whether [Verifier.Verify] has to decide on a request: it has a token of the host, and no client certificate. Whoever
// has a certificate is who the certificate says, as in all API servers.
func IsFor(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return false
	}
	_, ok := credentials.HostTokenOf(r)
	return ok
}

// Verify reports whether a request has the token of a ServiceAccount of the host that owns the space. verified is the request as the
// space gets it: with the identity, and without the token. Its context ends soon after the token is no longer good, or its owner no
// longer owns the space. Verify returns an error if it can't decide now; the client may retry.
func (v *Verifier) Verify(space string, r *http.Request) (verified *http.Request, ok bool, err error) {
	token, ok := credentials.HostTokenOf(r)
	if !ok {
		return r, false, nil
	}
	q := &reviewedRequest{verifier: v, space: space, client: clientaddr.OfRemote(r.RemoteAddr), token: token}
	if good, err := q.isGood(); err != nil || !good {
		return r, false, err
	}
	return q.untilRefused(r), true, nil
}

// reviewedRequest is a request with its token.
type reviewedRequest struct {
	verifier *Verifier
	space    string
	client   netip.Prefix
	token    credentials.HostToken
}

// isGood reports whether the token proves an owner of the space now. The host decides last, and only on tokens of owners.
func (q *reviewedRequest) isGood() (bool, error) {
	if !q.verifier.clock.Now().Before(q.token.Expires) || !q.verifier.owns(q.space, q.token.Name) {
		return false, nil
	}
	user, err := q.verifier.reviews.review(q.space, q.client, q.token.Text)
	return user == q.token.Name, err
}

// untilRefused returns the request as the space gets it, and reviews its token again until it ends.
func (q *reviewedRequest) untilRefused(r *http.Request) *http.Request {
	ctx := identity.With(r.Context(), &identity.Identity{Name: q.token.Name, Proof: identity.HostServiceAccount})
	verified := r.Clone(safego.While(ctx, q.untilReview(), "review the token of a request", q.again))
	verified.Header.Del("Authorization")
	return verified
}

// again reports whether the token may still be good, and when to ask again. While the host doesn't answer, it may until it expires. If too
// many tokens are being reviewed, it is asked again soon.
func (q *reviewedRequest) again() (pause time.Duration, mayBeGood bool) {
	good, err := q.isGood()
	pause = q.untilReview()
	if errors.Is(err, ErrBusy) {
		pause = min(pause, wait.Jitter(busyPause, 1))
	}
	return pause, good || err != nil
}

func (q *reviewedRequest) untilReview() time.Duration {
	return min(q.verifier.interval, q.token.Expires.Sub(q.verifier.clock.Now()))
}
