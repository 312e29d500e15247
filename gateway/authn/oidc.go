// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/refile"
)

const (
	// maxToken limits tokens, in bytes. It is checked before anything of a token is read.
	maxToken = 16 << 10
	// rememberedTokens is how many good tokens are remembered, and how many bad ones, so that they aren't checked again; rememberedFor is for how
	// long, as in Kubernetes.
	rememberedTokens = 4096
	rememberedFor    = 10 * time.Second
	// issuersTimeout limits how long issuers that are new in the file may take until their tokens are known, before the file holds anyhow.
	issuersTimeout = 10 * time.Second
)

// issuers are the OpenID Connect providers of a file (A5). A nil *issuers has none. It is safe for concurrent use.
type issuers struct {
	file   refile.File
	logger klog.Logger
	ctx    context.Context // upstream's authenticators fetch keys for as long as they are in use
	stop   context.CancelFunc
	byURL  atomic.Pointer[map[string]*issuer]
	// newTimeout is how long new issuers may take until their tokens can be checked.
	newTimeout time.Duration

	good, bad *lru.Cache // map [sha256.Size]byte to outcome
}

// outcome is of the check of a token. It holds for an issuer as it was then, until a time.
type outcome struct {
	by    *issuer
	until time.Time
	who   *identity.Identity
	err   error
}

// openIssuers reads a file; no file if path is empty. It doesn't wait for the issuers.
func openIssuers(path string, logger klog.Logger) (*issuers, error) {
	if path == "" {
		return nil, nil
	}
	s := &issuers{logger: logger, good: lru.New(rememberedTokens), bad: lru.New(rememberedTokens)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.byURL.Store(&map[string]*issuer{})
	s.file = refile.File{Path: path, MaxBytes: maxFile, Remedy: "name fewer providers", Parse: s.parse}
	if _, err := s.file.Read(); err != nil {
		s.stop()
		return nil, err
	}
	s.newTimeout = issuersTimeout
	return s, nil
}

// run reads the file again when it changes, until ctx ends. The issuers must not be used after that.
func (s *issuers) run(ctx context.Context) {
	if s == nil {
		return
	}
	defer s.stop()
	s.file.Follow(ctx, func() {
		s.logger.Info("Read the file with issuers again", "file", s.file.Path, "issuers", len(*s.byURL.Load()))
	}, func(err error) {
		s.logger.Error(err, "Could not read the file with issuers again; what was read before holds", "file", s.file.Path)
	})
}

// parse takes over the contents of the file. Issuers that are in it as before are kept. Others replace those of before once they are ready,
// or after the timeout.
func (s *issuers) parse(data []byte) error {
	configs, err := parseIssuers(data)
	if err != nil {
		return err
	}
	before, after, added := *s.byURL.Load(), map[string]*issuer{}, []*issuer(nil)
	for _, config := range configs {
		url := config.Issuer.URL
		if same := before[url]; same != nil && equality.Semantic.DeepEqual(same.config, config) {
			after[url] = same
			continue
		}
		if after[url], err = newIssuer(s.ctx, config); err != nil {
			for _, of := range added {
				of.stop()
			}
			return fmt.Errorf("issuer %s: %w", url, err)
		}
		added = append(added, after[url])
	}
	awaitIssuers(s.ctx, added, s.newTimeout)
	s.byURL.Store(&after)
	for url, of := range before {
		if after[url] != of {
			of.stop()
		}
	}
	return nil
}

// awaitIssuers waits until tokens of issuers can be checked, or a time has passed.
func awaitIssuers(ctx context.Context, all []*issuer, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for _, of := range all {
		for of.verifier.HealthCheck() != nil {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

// claims are what a token says, whoever has made it.
type claims struct {
	Issuer   string           `json:"iss"`
	Audience jwt.Audience     `json:"aud"`
	Expiry   *jwt.NumericDate `json:"exp"`
}

// find returns who has a token; nil if it is of none of the issuers. The error is a [*Refused], or a status of the API if that isn't known now.
func (s *issuers) find(r *http.Request, token string) (*identity.Identity, error) {
	if s == nil || token == "" {
		return nil, nil
	}
	if len(token) > maxToken {
		return nil, refused("your token has %d bytes, and may have %d; ask your admin for tokens with fewer claims, such as groups", len(token), maxToken)
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return nil, nil
	}
	var parsed claims
	if json.Unmarshal(data, &parsed) != nil {
		return nil, nil
	}
	by := (*s.byURL.Load())[parsed.Issuer]
	if by == nil {
		return nil, nil
	}
	now := time.Now()
	if err := by.checkClaims(parsed, now); err != nil {
		return nil, err
	}
	key := sha256.Sum256([]byte(token))
	for _, cache := range []*lru.Cache{s.good, s.bad} {
		if found, ok := cache.Get(key); ok && found.(outcome).by == by && now.Before(found.(outcome).until) {
			return found.(outcome).who, found.(outcome).err
		}
	}
	who, err := s.check(by, r, token)
	if statusErr := apierrors.APIStatus(nil); errors.As(err, &statusErr) { // it isn't known now whose the token is
		return nil, err
	}
	cache := s.good
	if err != nil {
		cache = s.bad
	}
	cache.Add(key, outcome{by, now.Add(rememberedFor), who, err})
	return who, err
}

// check returns who has a token, by its signature. The error is a [*Refused], or a status of the API if the token can't be checked now.
func (s *issuers) check(by *issuer, r *http.Request, token string) (*identity.Identity, error) {
	user, err := by.verify(r, token)
	if err == nil {
		return identityOfToken(user, by.config.Issuer.URL)
	}
	s.logger.V(2).Info("Refused a token", "issuer", by.config.Issuer.URL, "reason", err.Error())
	refusal, statusErr := (*Refused)(nil), apierrors.APIStatus(nil)
	if errors.As(err, &refusal) || errors.As(err, &statusErr) {
		return nil, err
	}
	return nil, refused("your token names the issuer %s, which hasn't signed it, or it isn't valid yet; log in again", by.config.Issuer.URL)
}
