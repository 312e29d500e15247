// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/lru"
)

// keys are what a space's credentials are signed by.
type keys struct {
	cas    []crypto.PublicKey // of client certificates
	tokens crypto.PublicKey   // of service-account tokens
	files  [2]fileStamp
	seen   *lru.Cache // of [sha256.Size]byte to the time.Time when it ends
}

func newKeys() *keys { return &keys{seen: lru.New(rememberedBearers)} }

type fileStamp struct {
	size     int64
	modified time.Time
}

func keyFiles(dir string) [2]string {
	return [2]string{filepath.Join(dir, "ca.crt"), filepath.Join(dir, "service-account.key")}
}

func stampsOf(dir string) (stamps [2]fileStamp) {
	for i, path := range keyFiles(dir) {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = fileStamp{info.Size(), info.ModTime()}
		}
	}
	return stamps
}

func readKeys(dir string) (*keys, error) {
	files := keyFiles(dir)
	k := newKeys()
	certs, err := certutil.CertsFromFile(files[0])
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		k.cas = append(k.cas, cert.PublicKey)
	}
	private, err := keyutil.PrivateKeyFromFile(files[1])
	if err != nil {
		return nil, err
	}
	signer, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the service-account key is not an ECDSA key")
	}
	k.tokens = &signer.PublicKey
	return k, nil
}

// remembers reports whether a credential was found good before, and still is.
func (k *keys) remembers(c credential, now time.Time) bool {
	until, ok := k.seen.Get(c.sum())
	return ok && now.Before(until.(time.Time))
}

// credential is what a client proves itself by.
type credential interface {
	sum() [sha256.Size]byte
	from() time.Time
	// signedBy says until when it is good, if it is signed by one of the keys.
	signedBy(*keys) (until time.Time, ok bool)
}

// certificate is a client's.
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

// token is a service account's.
type token string

func (t token) sum() [sha256.Size]byte { return sha256.Sum256([]byte(t)) }

// from is any time: whether a token is good already, the space's API server says.
func (t token) from() time.Time { return time.Time{} }

func (t token) signedBy(k *keys) (time.Time, bool) {
	parsed, err := jwt.ParseSigned(string(t))
	if err != nil {
		return time.Time{}, false
	}
	var claims jwt.Claims
	if parsed.Claims(k.tokens, &claims) != nil {
		return time.Time{}, false
	}
	if claims.Expiry == nil {
		return time.Unix(1<<40, 0), true // as old ones are: they have no end
	}
	return claims.Expiry.Time(), true
}
