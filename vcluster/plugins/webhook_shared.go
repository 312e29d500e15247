// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

const (
	// sharedWait is how long the call of a conversion webhook of the host takes at most, together with the wait for other calls.
	sharedWait = 10 * time.Second
	// mostSharedCalls is how many calls of one conversion webhook of the host a space has at once.
	mostSharedCalls = 4
	// logPause is how long after a failure of a webhook was logged another one isn't.
	logPause = 10 * time.Second
)

// SharedConversions calls the conversion webhooks of the definitions that the platform shares with a space, which are on the host. The
// space's API server calls those of its own definitions in another way, and can't reach these by its own definitions, see
// [definitions.WebhookScheme]. It is safe for concurrent use.
type SharedConversions struct {
	source  *definitions.Source
	account *bounds.Account
	stop    context.Context //nolint:containedctx // of the space: calls end with it, and upstream calls without a context

	mu       sync.Mutex
	webhooks map[string]*sharedWebhook // by name of the definition
	logged   map[string]time.Time      // when a failure was logged last, by name of the definition
}

// NewSharedConversions returns the conversions of a space until ctx ends. The account may be nil.
func NewSharedConversions(ctx context.Context, source *definitions.Source, account *bounds.Account) *SharedConversions {
	s := &SharedConversions{source: source, account: account, stop: ctx, webhooks: map[string]*sharedWebhook{}, logged: map[string]time.Time{}}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keep(nil)
	})
	return s
}

// Wrap makes webhook clients of shared definitions call the host's webhooks. All others are those of next.
func (s *SharedConversions) Wrap(next webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
			host, _, err := net.SplitHostPort(hostPort)
			if err != nil {
				host = hostPort
			}
			if _, shared := definitions.DefinitionOfWebhook(host); shared {
				c := &rest.Config{Timeout: sharedWait + time.Second} // what ends first has the better message
				// A tenant may add a caBundle, with which a config can't have a Transport. See WebhooksBy for Proxy.
				c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
				c.Wrap(func(http.RoundTripper) http.RoundTripper { return s })
				return c, nil
			}
			return next.ClientConfigFor(hostPort)
		},
		ClientConfigForServiceFunc: next.ClientConfigForService,
	}
}

var errNotShared = errors.New(
	"the URL stands for a conversion webhook of the platform, which only the definition that the platform shares can use; name a webhook of the space in spec.conversion.webhook.clientConfig")

// RoundTrip implements [http.RoundTripper].
func (s *SharedConversions) RoundTrip(r *http.Request) (*http.Response, error) {
	name, shared := definitions.DefinitionOfWebhook(r.URL.Hostname())
	if !shared || r.URL.Scheme != definitions.WebhookScheme {
		roundtrip.CloseBody(r)
		return nil, errNotShared
	}
	set, _ := s.source.Watch()
	resp, err := s.call(r, name, set)
	if err != nil {
		roundtrip.CloseBody(r)
		return nil, s.failed(name, err)
	}
	return resp, nil
}

func (s *SharedConversions) call(r *http.Request, name string, set *definitions.Set) (_ *http.Response, err error) {
	hook, err := s.webhook(name, set)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), sharedWait, errSlow)
	ended := context.AfterFunc(s.stop, cancel)
	held := s.hold()
	begun := false
	end := sync.OnceFunc(func() {
		if begun {
			hook.end()
		}
		held.End()
		ended()
		cancel()
	})
	defer func() {
		if err != nil {
			end()
		}
	}()
	if err := held.Grow(callMemory + callCopies*max(0, r.ContentLength)); err != nil { // it waits with its object
		return nil, &visibleError{err}
	}
	if err := hook.begin(ctx); err != nil {
		return nil, err
	}
	begun = true
	resp, err := hook.transport.RoundTrip(hook.request(ctx, r))
	if err != nil {
		return nil, slow(ctx, err)
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode > http.StatusPartialContent { // as upstream
		_ = resp.Body.Close()
		return nil, &visibleError{fmt.Errorf("it answered with the HTTP status %d", resp.StatusCode)}
	}
	limit := mostAnswered(MaxConverted, r)
	resp.Body = &sharedBody{
		boundedBody: &boundedBody{ReadCloser: resp.Body, limit: limit, left: limit, size: &answerSize{}, reservation: held}, ctx: ctx, end: end,
		failed: func(err error) error { return s.failed(name, err) },
	}
	// What the host's webhook says of itself isn't the space's, such as when to try again.
	resp.Header = http.Header{"Content-Type": resp.Header.Values("Content-Type")}
	return resp, nil
}

// hold returns the reservation of a call. Upstream calls conversion webhooks without the context of the request.
func (s *SharedConversions) hold() *bounds.Reservation {
	if s.account == nil {
		return nil
	}
	return s.account.Reserve(bounds.MemoryBytes, 0)
}

// webhook returns the webhook of a definition, as the host has it now.
func (s *SharedConversions) webhook(name string, set *definitions.Set) (*sharedWebhook, error) {
	shared := set.Of(name)
	if shared == nil || shared.Webhook == nil {
		return nil, &visibleError{errors.New("the platform doesn't share the definition any longer")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop.Err(); err != nil {
		return nil, &visibleError{errors.New("the space is stopping")}
	}
	have := s.webhooks[name]
	if have == nil || have.Webhook != shared.Webhook {
		s.keep(set)
		made, err := newSharedWebhook(shared.Webhook)
		if err != nil {
			return nil, err
		}
		s.webhooks[name], have = made, made
	}
	return have, nil
}

// keep forgets the webhooks that a set doesn't have. The caller holds mu.
func (s *SharedConversions) keep(set *definitions.Set) {
	maps.DeleteFunc(s.webhooks, func(name string, hook *sharedWebhook) bool {
		shared := set.Of(name)
		gone := shared == nil || shared.Webhook != hook.Webhook
		if gone {
			hook.transport.CloseIdleConnections()
		}
		return gone
	})
}

// visibleError is a reason that tenants may see.
type visibleError struct{ error }

// Unwrap returns the reason.
func (e *visibleError) Unwrap() error { return e.error }

var errSlow = &visibleError{fmt.Errorf("it didn't answer within %s, or other calls took as long", sharedWait)}

// slow returns that a call took too long, if that is why it failed.
func slow(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// failed returns an error that tenants may see: it doesn't name addresses of the host. The log of the platform has the reason.
func (s *SharedConversions) failed(name string, reason error) error {
	s.mu.Lock()
	log := time.Since(s.logged[name]) >= logPause && s.stop.Err() == nil
	if log {
		s.logged[name] = time.Now()
	}
	s.mu.Unlock()
	if log {
		klog.FromContext(s.stop).Error(reason, "The conversion webhook of a shared definition failed", "definition", name)
	}
	visible, ok := errors.AsType[*visibleError](reason)
	if !ok {
		visible = &visibleError{errors.New("it can't be reached")}
	}
	return fmt.Errorf("the platform's conversion webhook of the CustomResourceDefinition %s failed: %w; retry, and tell the administrator of the platform if it stays so", name, visible)
}

// sharedBody is what a webhook of the host answers.
type sharedBody struct {
	*boundedBody
	ctx    context.Context //nolint:containedctx // of the call
	end    func()
	failed func(error) error
}

// Read implements [io.Reader].
func (b *sharedBody) Read(p []byte) (int, error) {
	n, err := b.boundedBody.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF):
	case b.refused:
		err = b.failed(&visibleError{err})
	default:
		err = b.failed(slow(b.ctx, err))
	}
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements [io.Closer].
func (b *sharedBody) Close() error {
	defer b.end()
	return b.boundedBody.Close()
}
