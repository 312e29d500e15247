// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

// O9, S7: a flood of forged tokens with the right claims does not reach the host, or at a low rate if its keys can't be read. It holds
// up neither other spaces, also from the same address, nor tokens that were proven before.
func TestHostileFloodsOfForgedTokensAreBounded(t *testing.T) {
	for name, status := range map[string]int32{"with the host's keys": 0, "without the host's keys": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.jwks.Store(status)
			e.resistFlood(t)
		})
	}
}

func (e *env) resistFlood(t *testing.T) {
	readable := e.jwks.Load() == 0
	known := e.token(t, "robot", "berth.dev")
	if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	stop, sent := e.flood(t)
	began, fresh := time.Now(), 0
	testhost.Eventually(t, "the flood", func(context.Context) error {
		e.clock.SetTime(time.Now())
		if ok, err := e.verify(t, "solar", known, client1); !ok || err != nil {
			t.Errorf("a token that was proven before: %v, %v", ok, err)
		}
		fresh++
		if ok, err := e.verify(t, "lunar", e.token(t, "moon", "berth.dev"), client1); !ok || err != nil {
			t.Errorf("a new token for another space: %v, %v", ok, err)
		}
		if readable {
			fresh++
			if ok, err := e.verify(t, "solar", e.token(t, "robot", "berth.dev"), "203.0.113.1"); !ok || err != nil {
				t.Errorf("a new token for the same space: %v, %v", ok, err)
			}
		}
		if time.Since(began) < 2*provenFor {
			return errors.New("it goes on")
		}
		return nil
	})
	stop()
	took := time.Since(began)
	t.Logf("%d forged tokens in %s: %d reviews, %d at once; %d new tokens", sent.Load(), took, e.count(), e.atMax, fresh)
	most := fresh + int(took/provenFor) + 2 // those of this test
	if !readable {
		most += int(float64(maxReviewsPerSpace) * (took.Seconds()/refusedPause.Seconds() + 2))
	}
	if e.count() > most {
		t.Errorf("the host reviewed %d tokens, want at most %d", e.count(), most)
	}
	if e.atMax > maxReviewsPerSpace+2 {
		t.Errorf("%d reviews at once", e.atMax)
	}
	if n := e.Verifier.reviews.refused.Len(); n > rememberedRefused {
		t.Errorf("%d results are remembered", n)
	}
	if most := int(took/keysInterval) + 2; e.keys > most {
		t.Errorf("the host was asked for its keys %d times, want at most %d", e.keys, most)
	}
}

// flood sends forged tokens for solar from many addresses, and from that of a good client, until stop.
func (e *env) flood(t *testing.T) (stop func(), sent *atomic.Int64) {
	flood, end := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	sent = &atomic.Int64{}
	unknown := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"x"}`))
	for i := range 48 {
		from := client1
		if i < 24 {
			from = fmt.Sprintf("198.51.100.%d", i)
		}
		senders.Go(func() {
			for n := i * 1_000_000; flood.Err() == nil; n++ {
				token := e.forged(n)
				if n%2 == 1 {
					token = e.forgedWith(unknown, n)
				}
				ok, err := e.verify(t, "solar", token, from)
				if ok || err != nil && !errors.Is(err, ErrBusy) {
					t.Errorf("a forged token: %v, %v", ok, err)
				}
				sent.Add(1)
			}
		})
	}
	return func() { end(); senders.Wait() }, sent
}

// X2, L3: a ServiceAccount that collected many tokens, and has a request with each, has none of them soon after it was deleted: tokens
// that were proven don't wait for one another, and one that finds no place is reviewed again soon.
func TestHostileManyTokensEndSoonAfterTheirAccount(t *testing.T) {
	const tokens = 200
	e := newEnv(t)
	e.interval = 5 * time.Second // a sixth of the real one
	var open []context.Context
	for range tokens {
		verified, ok, err := e.Verify("solar", request(t.Context(), e.token(t, "robot", v1alpha1.TokenAudience), client1))
		if !ok || err != nil {
			t.Fatalf("token %d: %v, %v", len(open), ok, err)
		}
		open = append(open, verified.Context())
	}
	if err := e.host.CoreV1().ServiceAccounts(e.namespace).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	const looks = 100
	for look, left := 0, tokens; left > 0; look++ {
		if look == looks {
			t.Fatalf("%d of %d requests go on, five intervals after the account was deleted", left, tokens)
		}
		e.clock.SetTime(e.clock.Now().Add(provenFor)) // the tokens don't expire in all looks
		select {
		case <-time.After(time.Second / 4):
		case <-t.Context().Done():
			return
		}
		left = 0
		for _, ctx := range open {
			if ctx.Err() == nil {
				left++
			}
		}
	}
}
