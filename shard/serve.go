// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// spaceHandler serves the requests to a space from outside. Requests with a credential of the space count: they wait
// until the space is awake, and keep it awake while they last, including watches and exec. Requests without such a
// credential wake no space; a space that is awake gets them, and its API server answers them. Health checks don't
// count, nor do requests of the clients that the admin ignores ([Clients]), because monitoring a space is not using it.
type spaceHandler struct {
	shard *Shard
	place *place
}

// ServeHTTP implements [http.Handler].
func (h *spaceHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	healthy := isHealth(r)
	counts := false
	if !healthy {
		var err error
		if counts, err = h.shard.verified(h.place.name, r); err != nil {
			httpstatus.Write(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error()+"; try again later", firstRetry)
			return
		}
	}
	ignored := false
	if counts {
		idle := h.shard.config.Idle(h.place.name)
		ignored = idle.Ignored.have(r)
		counts = !ignored
	}
	space, refuse := h.enter(r, counts)
	if refuse != nil && ignored {
		refuse = unavailable(h.place.name, "is not awake, and this client does not wake it", ignoredRetry)
	}
	if refuse != nil && healthy {
		h.health(w)
		return
	}
	if refuse != nil {
		refuse.write(w)
		return
	}
	if counts {
		defer h.leave()
	}
	h.shard.log.Used(h.place.name)
	space.plane.Handler().ServeHTTP(w, r)
}

// enter returns the space once it is awake. If the request counts, the caller must call leave.
func (h *spaceHandler) enter(r *http.Request, counts bool) (*Space, *refusal) {
	s, p := h.shard, h.place
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state == running {
		h.begin(counts)
		return p.space, nil
	}
	if !counts {
		return nil, unauthorized()
	}
	if p.held >= maxHeld {
		return nil, tooMany(p.name)
	}
	p.held++
	defer func() { p.held-- }()
	timeout := s.config.Clock.NewTimer(s.config.WakeTimeout)
	defer timeout.Stop()
	for p.state != running {
		if now := s.config.Clock.Now(); p.state == asleep && p.failure != nil && p.retry.After(now) {
			return nil, unavailable(p.name, p.whyNot(), p.retry.Sub(now))
		}
		wake := s.want(p)
		if wait := s.afterTrial(p); wait > 0 {
			return nil, unavailable(p.name, isSuspect, wait)
		}
		s.mu.Unlock()
		var late bool
		select {
		case <-wake.done:
		case <-timeout.C():
			late = true
		case <-r.Context().Done():
			late = true
		}
		s.mu.Lock()
		switch {
		case late && p.state == queued:
			return nil, unavailable(p.name, "is asleep, and too many other spaces are awake", firstRetry)
		case late:
			return nil, unavailable(p.name, "is waking up", firstRetry)
		case wake.err != nil:
			return nil, unavailable(p.name, p.whyNot(), max(firstRetry, p.retry.Sub(s.config.Clock.Now())))
		}
	}
	h.begin(true)
	return p.space, nil
}

// ignoredRetry is the Retry-After for a client that wakes no space.
const ignoredRetry = time.Minute

// isSuspect is what a tenant reads about why its space is held back.
const isSuspect = "is held back, because it may have crashed the process that it shares with other spaces"

// whyNot returns what a tenant reads about why its space does not run.
func (p *place) whyNot() string {
	if held := (heldBack{}); errors.As(p.failure, &held) {
		return isSuspect
	}
	if errors.Is(p.failure, errMemory) {
		return "used most of the memory of its shared process and was put to sleep"
	}
	return "can't be started"
}

type verifiedKey struct{}

// Verify reports whether a request has a credential of a space, which need not exist. verified is the request to pass
// to the space's handler, so that the handler does not verify it again. It returns an error if too many requests are
// being verified; the client may retry.
func (s *Shard) Verify(space string, r *http.Request) (verified *http.Request, ok bool, err error) {
	if ok, err = s.credentials.Verify(space, r); err != nil || !ok {
		return r, false, err
	}
	return r.WithContext(context.WithValue(r.Context(), verifiedKey{}, space)), true, nil
}

// verified returns the result of Verify if that was called for the request, and otherwise calls it. The gateway has verified who has an
// identity.
func (s *Shard) verified(space string, r *http.Request) (bool, error) {
	if identity.From(r.Context()) != nil {
		return true, nil
	}
	if name, ok := r.Context().Value(verifiedKey{}).(string); ok && name == space {
		return true, nil
	}
	return s.credentials.Verify(space, r)
}

// isFormerOwners reports whether a request has the certificate of an owner of a space who is none any more. The settings are read
// only for a certificate that is issued to an owner.
func (s *Shard) isFormerOwners(space string, r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(pki.OwnersOf(r.TLS.PeerCertificates[0])) == 0 {
		return false
	}
	return credentials.IsFormerOwners(s.config.Settings(space).Access, r)
}

func (h *spaceHandler) begin(counts bool) {
	if counts {
		h.place.requests++
		h.place.lastRequest = h.shard.config.Clock.Now()
	}
}

func (h *spaceHandler) leave() {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	h.place.requests--
	if h.place.state == running {
		h.place.lastRequest = h.shard.config.Clock.Now()
	}
}

// isHealth reports whether a request is a health check, which an API server answers without authentication.
func isHealth(r *http.Request) bool {
	return r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/healthz"
}

// health answers a health check of a space that does not run: the space is healthy if it would wake.
func (h *spaceHandler) health(w http.ResponseWriter) {
	h.shard.mu.Lock()
	reason, _ := h.place.reason()
	h.shard.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if reason == ReasonFailed || reason == ReasonCrashSuspect {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, "the space is %s\n", strings.ToLower(reason))
}

// refusal is an error answer of the shard itself, in the form of an API server's. It says nothing about causes on the
// platform's side, which the space's conditions contain.
type refusal struct {
	code    int32
	reason  metav1.StatusReason
	message string
	after   time.Duration // Retry-After; 0 if retrying is of no use
}

func unauthorized() *refusal {
	return &refusal{code: http.StatusUnauthorized, reason: metav1.StatusReasonUnauthorized, message: "Unauthorized"}
}

func tooMany(space string) *refusal {
	return &refusal{
		code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests, after: firstRetry,
		message: fmt.Sprintf("space %s is waking up, and %d requests are waiting for it; try again later", space, maxHeld),
	}
}

func unavailable(space, why string, after time.Duration) *refusal {
	return &refusal{
		code: http.StatusServiceUnavailable, reason: metav1.StatusReasonServiceUnavailable, after: after,
		message: fmt.Sprintf("space %s %s; try again later, or ask the admin of the platform (`berth spaces` shows the reason)", space, why),
	}
}

func (f *refusal) write(w http.ResponseWriter) {
	httpstatus.Write(w, int(f.code), f.reason, f.message, f.after)
}
