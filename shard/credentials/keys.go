// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/vcluster/pki"
)

// keys are the keys that sign a space's credentials.
type keys struct {
	cas    []crypto.PublicKey // of client certificates
	tokens []pki.RetiredKey   // of service-account tokens; the current key has no end
	files  [keyFileCount]fileStamp
	seen   *lru.Cache // maps [sha256.Size]byte to the time.Time at which the credential expires
}

func newKeys() *keys { return &keys{seen: lru.New(rememberedBearers)} }

type fileStamp struct {
	size     int64
	modified time.Time
}

const keyFileCount = 4

func stampsOf(dir string) (stamps [keyFileCount]fileStamp) {
	for i, name := range [keyFileCount]string{"ca.crt", "ca-revoked.crt", "service-account.key", "service-account-retired.pub"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			stamps[i] = fileStamp{info.Size(), info.ModTime()}
		}
	}
	return stamps
}

func readKeys(dir string, now time.Time) (*keys, error) {
	k := newKeys()
	certs, err := pki.Trusted(dir)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		k.cas = append(k.cas, cert.PublicKey)
	}
	signs, err := pki.ServiceAccountPublicKey(dir)
	if err != nil {
		return nil, err
	}
	retired, err := pki.RetiredServiceAccountKeys(dir, now)
	if err != nil {
		return nil, err
	}
	k.tokens = append([]pki.RetiredKey{{Key: signs}}, retired...)
	return k, nil
}

// remembers reports whether a credential was verified before, and has not expired.
func (k *keys) remembers(c credential, now time.Time) bool {
	until, ok := k.seen.Get(c.sum())
	return ok && now.Before(until.(time.Time))
}

// credential is what a client authenticates with.
type credential interface {
	sum() [sha256.Size]byte
	from() time.Time
	// signedBy returns when the credential expires, and whether one of the keys has signed it.
	signedBy(*keys) (until time.Time, ok bool)
}

// certificate is a client certificate.
type certificate struct{ *x509.Certificate }

func (c certificate) sum() [sha256.Size]byte { return sha256.Sum256(c.Raw) }

func (c certificate) from() time.Time { return c.NotBefore }

func (c certificate) signedBy(k *keys) (time.Time, bool) {
	for _, ca := range k.cas {
		key, ok := ca.(*ecdsa.PublicKey)
		if !ok {
			continue
		}
		parent := x509.Certificate{PublicKey: key, PublicKeyAlgorithm: x509.ECDSA}
		if parent.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil {
			return c.NotAfter, true
		}
	}
	return time.Time{}, false
}

// token is a service-account token.
type token string

func (t token) sum() [sha256.Size]byte { return sha256.Sum256([]byte(t)) }

// from returns the zero time: whether a token is already valid is decided by the space's API server.
func (t token) from() time.Time { return time.Time{} }

func (t token) signedBy(k *keys) (time.Time, bool) {
	parsed, err := jwt.ParseSigned(string(t))
	if err != nil {
		return time.Time{}, false
	}
	for _, key := range k.tokens {
		var claims jwt.Claims
		if parsed.Claims(key.Key, &claims) != nil {
			continue
		}
		until := time.Unix(1<<40, 0) // for tokens in Secrets, which don't expire
		if claims.Expiry != nil {
			until = claims.Expiry.Time()
		}
		if !key.Until.IsZero() && key.Until.Before(until) {
			until = key.Until
		}
		return until, true
	}
	return time.Time{}, false
}
