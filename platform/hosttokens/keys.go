// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	jose "gopkg.in/go-jose/go-jose.v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// keysPath is where API servers publish the keys that verify tokens of ServiceAccounts, as a JSON Web Key Set (RFC 7517).
	keysPath = "/openid/v1/jwks"
	// keysInterval is how often at most the keys are read. Anybody can send a token with an unknown key.
	keysInterval = 10 * time.Second
	keysTimeout  = 5 * time.Second
	// maxKeysSize is the maximum size of the key set, in bytes. A key has less than one kilobyte.
	maxKeysSize = 256 << 10
)

// errNoKeys is returned while the host's keys can't be read.
var errNoKeys = errors.New("the keys of the host can't be read")

// keys are the host's public keys for tokens of ServiceAccounts. They are safe for concurrent use.
type keys struct {
	host    rest.Interface
	clock   clock.PassiveClock
	logger  klog.Logger
	flights singleflight.Group

	mu    sync.Mutex
	byID  map[string]any
	err   error // of an unknown key
	tried time.Time
}

// key returns the key with an ID; nil if the host has none.
func (k *keys) key(id string) (any, error) {
	key, final, err := k.current(id)
	if final {
		return key, err
	}
	_, _, _ = k.flights.Do("", func() (any, error) {
		if _, final, _ := k.current(id); !final {
			k.renew()
		}
		return nil, nil
	})
	key, _, err = k.current(id)
	return key, err
}

// current returns the key if it is known. final reports whether the keys may not be read again now.
func (k *keys) current(id string) (key any, final bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.byID[id]; key != nil {
		return key, true, nil
	}
	return nil, !k.tried.IsZero() && k.clock.Now().Sub(k.tried) < keysInterval, k.err
}

// renew reads the keys again. If the host fails, those that are known remain.
func (k *keys) renew() {
	byID, err := k.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried = k.clock.Now()
	switch {
	case err == nil:
		k.byID, k.err = byID, nil
	case k.byID != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		k.err = ErrHost
	default:
		if !errors.Is(k.err, errNoKeys) {
			k.logger.Error(err, "Can't read the host's keys, so the host reviews forged tokens, too; check the right to get "+keysPath)
		}
		k.byID, k.err = nil, errNoKeys
	}
}

func (k *keys) read() (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keysTimeout)
	defer cancel()
	body, err := k.host.Get().AbsPath(keysPath).SetHeader("Accept", "application/jwk-set+json, application/json").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", keysPath, err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxKeysSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", keysPath, err)
	}
	if len(data) > maxKeysSize {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", keysPath, maxKeysSize)
	}
	return parseKeys(data)
}

// parseKeys returns the public keys of a key set by their IDs.
func parseKeys(data []byte) (map[string]any, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("parse %s: %w", keysPath, err)
	}
	byID := map[string]any{}
	for _, key := range set.Keys {
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey: // no key that both signs and verifies
			if key.KeyID != "" {
				byID[key.KeyID] = key.Key
			}
		}
	}
	if len(byID) == 0 {
		return nil, fmt.Errorf("parse %s: it has no public key with an ID", keysPath)
	}
	return byID, nil
}
