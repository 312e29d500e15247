// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"sync"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/pki"
)

// tokenKeys are the keys by which service-account tokens are verified: the one that signs, and those that signed before
// a rotation, each as long as it is accepted.
type tokenKeys struct {
	clock clock.PassiveClock
	keys  []tokenKey // the one that signs first

	mu        sync.Mutex
	listeners []serviceaccount.Listener
	announced int // how many of keys were good when the listeners last heard of them
}

type tokenKey struct {
	serviceaccount.PublicKey
	until time.Time // zero for the one that signs
}

var _ serviceaccount.PublicKeysGetter = &tokenKeys{}

func openTokenKeys(dir string, c clock.PassiveClock) (*tokenKeys, error) {
	signs, err := pki.ServiceAccountPublicKey(dir)
	if err != nil {
		return nil, err
	}
	retired, err := pki.RetiredServiceAccountKeys(dir, c.Now())
	if err != nil {
		return nil, err
	}
	k := &tokenKeys{clock: c}
	for _, key := range append([]pki.RetiredKey{{Key: signs}}, retired...) {
		public, err := publicKey(key.Key)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, tokenKey{public, key.Until})
	}
	k.announced = len(k.keys)
	return k, nil
}

// publicKey is a key with the ID that upstream gives it.
func publicKey(key *ecdsa.PublicKey) (serviceaccount.PublicKey, error) {
	getter, err := serviceaccount.StaticPublicKeysGetter([]any{key})
	if err != nil {
		return serviceaccount.PublicKey{}, fmt.Errorf("identify service-account key: %w", err)
	}
	return getter.GetPublicKeys(context.Background(), "")[0], nil
}

// SignerID is the ID of the key that signs.
func (k *tokenKeys) SignerID() string { return k.keys[0].KeyID }

// AddListener implements [serviceaccount.PublicKeysGetter].
func (k *tokenKeys) AddListener(l serviceaccount.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, l)
}

// GetCacheAgeMaxSeconds is upstream's.
func (k *tokenKeys) GetCacheAgeMaxSeconds() int { return int(time.Hour / time.Second) }

// GetPublicKeys returns the keys that are good now, of that ID if one is given.
func (k *tokenKeys) GetPublicKeys(_ context.Context, id string) (keys []serviceaccount.PublicKey) {
	now, good := k.clock.Now(), 0
	for _, key := range k.keys {
		if !key.until.IsZero() && !now.Before(key.until) {
			continue
		}
		good++
		if id == "" || id == key.KeyID {
			keys = append(keys, key.PublicKey)
		}
	}
	k.announce(good)
	return keys
}

// announce has the published keys made anew when one of them is good no more.
func (k *tokenKeys) announce(good int) {
	k.mu.Lock()
	changed := good != k.announced
	k.announced = good
	listeners := k.listeners
	k.mu.Unlock()
	if !changed {
		return
	}
	for _, l := range listeners {
		l.Enqueue()
	}
}
