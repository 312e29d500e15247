// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/askwebhook"
	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	// reviewTimeout limits how long a review may take.
	reviewTimeout = 10 * time.Second
	// refusedFor is how long a token that isn't good is remembered.
	refusedFor = 10 * time.Second
	// rememberedGood and rememberedRefused limit how many reviews are remembered. Whoever can make good tokens can make many: each takes up
	// to maxReviewed bytes.
	rememberedGood    = 4096
	rememberedRefused = 16384

	// Anybody can send any token. These limit the reviews of tokens that aren't known as good, in total and for each client, and the requests
	// that wait for reviews. A token that isn't good, or that can't be reviewed, keeps its place for refusedPause: so a client causes 4 such
	// reviews a second, and all together cause 128.
	maxReviews, maxReviewsPerClient = 64, 2
	maxWaiting, maxWaitingPerClient = 1024, 128
	refusedPause                    = 500 * time.Millisecond
	// These limit the reviews of tokens that were good before, which no flood of others holds up.
	maxRenewals, maxRenewalsPerClient = 64, 16

	// retryAfter is when a client may try again, in seconds.
	retryAfter = 1
	// logInterval is how often, at most, it is logged that the webhook fails: clients can make that happen often.
	logInterval = time.Minute
)

// Webhook configures a webhook that reviews tokens.
type Webhook struct {
	// ConfigFile is a kubeconfig with the URL of the webhook. If it is empty, there is none.
	ConfigFile string
	// Version is that of the TokenReview: v1 or v1beta1.
	Version string
	// CacheTTL is how long a good token isn't reviewed again.
	CacheTTL time.Duration
	// TenantExtra, RolesExtra, and ProjectExtra are the keys of the reply's extra fields with the user's tenant, the user's roles, and the
	// project that the roles are of. Without the last one, roles are of no project.
	TenantExtra, RolesExtra, ProjectExtra string
}

// reviews are the reviews of tokens by a webhook. They are safe for concurrent use.
type reviews struct {
	config  Webhook
	webhook authenticator.Token
	clock   clock.PassiveClock
	logger  klog.Logger

	flights           singleflight.Group
	good, refused     *lru.Cache // map [sha256.Size]byte to review
	waiting           *clientaddr.Counter
	unknown, renewals *clientaddr.Counter

	mu     sync.Mutex
	logged time.Time
}

// review is the result of one.
type review struct {
	who *identity.Identity // nil if the token isn't good
	err error              // a [*Refused], if it is good and leads nowhere
	at  time.Time
}

// openWebhook reads the configuration of a webhook; nil if there is none.
func openWebhook(config Webhook, logger klog.Logger) (*reviews, error) {
	if config.ConfigFile == "" {
		return nil, nil
	}
	if config.CacheTTL < 0 {
		return nil, fielderror.New("authentication-token-webhook-cache-ttl", config.CacheTTL, "must not be negative")
	}
	client, err := askwebhook.Load(config.ConfigFile, reviewTimeout)
	if err != nil {
		return nil, fielderror.New("authentication-token-webhook-config-file", config.ConfigFile, "%w", err)
	}
	asked, err := webhook.New(client, config.Version, nil, wait.Backoff{Steps: 1})
	if err != nil {
		return nil, fielderror.New("authentication-token-webhook-version", config.Version, "%w", err)
	}
	return newReviews(config, asked, clock.RealClock{}, logger), nil
}

func newReviews(config Webhook, asked authenticator.Token, c clock.PassiveClock, logger klog.Logger) *reviews {
	return &reviews{
		config: config, webhook: asked, clock: c, logger: logger,
		good: lru.New(rememberedGood), refused: lru.New(rememberedRefused),
		waiting: clientaddr.NewCounter(maxWaiting, maxWaitingPerClient),
		unknown: clientaddr.NewCounter(maxReviews, maxReviewsPerClient), renewals: clientaddr.NewCounter(maxRenewals, maxRenewalsPerClient),
	}
}

// find returns who has a token; nil if nobody has, or if the token is none for the webhook. The error is a [*Refused], or an
// [apierrors.APIStatus] if that can't be said now.
func (v *reviews) find(client netip.Prefix, token string) (*identity.Identity, error) {
	if v == nil || !mayBeReviewed(token) {
		return nil, nil
	}
	key := sha256.Sum256([]byte(token))
	if known, _, ok := v.remembered(key); ok {
		return known.who, known.err
	}
	if !v.waiting.Take(client) {
		return nil, busy()
	}
	defer v.waiting.Give(client)
	result, err, _ := v.flights.Do(string(key[:]), func() (any, error) { return v.review(client, key, token) })
	if err != nil {
		return nil, err
	}
	return result.(review).who, result.(review).err
}

// review reviews a token if that has not just been done.
func (v *reviews) review(client netip.Prefix, key [sha256.Size]byte, token string) (review, error) {
	known, wasGood, ok := v.remembered(key)
	if ok {
		return known, nil
	}
	limit, pause := v.unknown, time.Duration(0)
	if wasGood {
		limit = v.renewals
	}
	if !limit.Take(client) {
		return review{}, busy()
	}
	defer func() {
		if pause == 0 {
			limit.Give(client)
			return
		}
		safego.AfterFunc(pause, "give back the review of a token", func() { limit.Give(client) })
	}()
	result, err := v.ask(token)
	switch {
	case err != nil:
		pause = refusedPause
		return review{}, err
	case result.who != nil || result.err != nil:
		v.refused.Remove(key)
		v.good.Add(key, result)
	default:
		if !wasGood { // the requests that last of a token that is good no more have to end soon
			pause = refusedPause
		}
		v.good.Remove(key)
		v.refused.Add(key, result)
	}
	return result, nil
}

// remembered returns a review that still holds. wasGood reports whether the token was good when it was last reviewed.
func (v *reviews) remembered(key [sha256.Size]byte) (known review, wasGood, ok bool) {
	now := v.clock.Now()
	if found, ok := v.refused.Get(key); ok && now.Sub(found.(review).at) < refusedFor {
		return found.(review), false, true
	}
	found, wasGood := v.good.Get(key)
	if !wasGood {
		return review{}, false, false
	}
	return found.(review), true, now.Sub(found.(review).at) < v.config.CacheTTL
}

// ask asks the webhook. A client that gives up doesn't end that, because others may wait for the result.
func (v *reviews) ask(token string) (review, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reviewTimeout)
	defer cancel()
	ctx, answered := askwebhook.Watch(ctx)
	result := review{at: v.clock.Now()}
	response, ok, err := v.webhook.AuthenticateToken(ctx, token)
	switch {
	case ok:
		result.who, result.err = v.config.identityOf(response.User)
	case err != nil && !answered():
		v.log(err)
		return review{}, unavailable("the webhook that reviews tokens can't be asked now")
	}
	return result, nil
}

// log logs that the webhook fails.
func (v *reviews) log(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := v.clock.Now(); now.Sub(v.logged) >= logInterval {
		v.logged = now
		v.logger.Error(fmt.Errorf("review a token: %w", err), "The webhook doesn't review tokens, so that its users can't use their spaces; check --authentication-token-webhook-config-file, and the webhook")
	}
}

// busy and unavailable say that it isn't known now whose a token is.
func busy() error {
	return apierrors.NewTooManyRequests("too many tokens are being checked; try again later", retryAfter)
}

func unavailable(why string) error {
	err := apierrors.NewServiceUnavailable(why + "; try again later")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return err
}
