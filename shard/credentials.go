// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/lru"
)

const (
	// maxToken bounds the tokens that are looked at: a service account's has
	// about one kilobyte.
	maxToken = 16 << 10
	// rememberedBearers bounds the credentials of a space that are known again
	// without a look at their signature.
	rememberedBearers = 64
)

// keys tell who has a credential of a space, even while the space sleeps: by the
// signature alone. Whether it was revoked since, and what its bearer may do, the
// space's API server says once it is awake.
type keys struct {
	authorities []crypto.PublicKey // of client certificates
	tokens      crypto.PublicKey   // of service-account tokens
	files       [2]fileStamp
	seen        *lru.Cache // of [sha256.Size]byte to the time.Time when it ends
}

type fileStamp struct {
	size     int64
	modified time.Time
}

// bears reports whether a request bears a credential of the space.
func (s *Shard) bears(p *place, r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	certified := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if !certified && (token == "" || len(token) > maxToken) {
		return false
	}
	s.mu.Lock()
	k, awake := p.keys, p.state == running
	s.mu.Unlock()
	now := s.config.Clock.Now()
	check := func(k *keys) bool {
		return certified && k.certified(r.TLS.PeerCertificates[0], now) || token != "" && k.signed(token, now)
	}
	if k != nil && check(k) {
		return true
	}
	// They may have been renewed, or not be read yet.
	dir := filepath.Join(s.dir(p.name), "pki")
	stamps := stampsOf(dir)
	if k != nil && k.files == stamps {
		return false
	}
	k, err := readKeys(dir)
	if err != nil {
		return false
	}
	k.files = stamps
	if awake {
		k.seen = lru.New(rememberedBearers)
	}
	s.mu.Lock()
	p.keys = k
	s.mu.Unlock()
	return check(k)
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
	k := &keys{}
	certs, err := certutil.CertsFromFile(files[0])
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		k.authorities = append(k.authorities, cert.PublicKey)
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

// certified reports whether a certificate is one of the space's authority.
func (k *keys) certified(cert *x509.Certificate, now time.Time) bool {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return false
	}
	return k.remembered(cert.Raw, now, func() (time.Time, bool) {
		for _, authority := range k.authorities {
			ecdsaKey, ok := authority.(*ecdsa.PublicKey)
			if !ok {
				continue
			}
			parent := x509.Certificate{PublicKey: ecdsaKey, PublicKeyAlgorithm: x509.ECDSA}
			if parent.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil {
				return cert.NotAfter, true
			}
		}
		return time.Time{}, false
	})
}

// signed reports whether a token is one of the space's.
func (k *keys) signed(token string, now time.Time) bool {
	return k.remembered([]byte(token), now, func() (time.Time, bool) {
		parsed, err := jwt.ParseSigned(token)
		if err != nil {
			return time.Time{}, false
		}
		var claims jwt.Claims
		if parsed.Claims(k.tokens, &claims) != nil {
			return time.Time{}, false
		}
		if claims.Expiry == nil {
			return now.AddDate(1, 0, 0), true // as old ones are: for ever
		}
		return claims.Expiry.Time(), claims.Expiry.Time().After(now)
	})
}

// remembered asks about a credential once only, if it is good and the space is
// awake. Bad ones are not remembered: there is no end of them.
func (k *keys) remembered(credential []byte, now time.Time, ask func() (until time.Time, ok bool)) bool {
	if k.seen == nil {
		_, ok := ask()
		return ok
	}
	key := sha256.Sum256(credential)
	if until, ok := k.seen.Get(key); ok {
		return now.Before(until.(time.Time))
	}
	until, ok := ask()
	if ok {
		k.seen.Add(key, until)
	}
	return ok
}
