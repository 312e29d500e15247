// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// revokedFile holds certificates of an authority that are trusted no more, until the authority that replaces them is
// there.
const revokedFile = "ca-revoked.crt"

// Rotate replaces the authority by a new one, and revokes so all certificates that it issued. They are refused by
// whoever opens the authority once a file has been written that says so. After a crash, whoever opens the authority
// next finishes the rotation.
func (ca *CA) Rotate() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	unlock, err := lockKeys(ca.dir)
	if err != nil {
		return fmt.Errorf("rotate certificate authority: %w", err)
	}
	defer unlock()
	if err := ca.load(); err != nil {
		return err
	}
	revoked, err := certutil.EncodeCertificates(ca.kept...)
	if err != nil {
		return fmt.Errorf("encode revoked certificates: %w", err)
	}
	if err := WriteFile(filepath.Join(ca.dir, revokedFile), revoked); err != nil {
		return fmt.Errorf("revoke certificate authority: %w", err)
	}
	return ca.renewLocked(ca.clock.Now())
}

// Trusted returns the certificates that the authority kept in dir trusts. It writes nothing.
func Trusted(dir string) ([]*x509.Certificate, error) {
	a, err := loadAuthority(dir)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority: %w", err)
	}
	return a.trusted(), nil
}

// A service-account key that signs no more is kept in retiredFile as long as tokens are accepted that it signed. Each
// block says in retiredUntil, an instant in RFC 3339, until when.
const (
	retiredFile  = "service-account-retired.pub"
	retiredUntil = "Until"
	publicBlock  = "PUBLIC KEY"
)

// RetiredKey is a service-account key that signs no more.
type RetiredKey struct {
	Key   *ecdsa.PublicKey
	Until time.Time // tokens that it signed are accepted
}

// RotateServiceAccountKey replaces the key in dir that signs service-account tokens. Tokens of the key that signed
// before are accepted for as long as overlap; if that is 0, no token is that was issued before. A crash leaves either
// the old key in use or the new one.
func RotateServiceAccountKey(dir string, now time.Time, overlap time.Duration) error {
	unlock, err := lockKeys(dir)
	if err != nil {
		return fmt.Errorf("rotate service-account key: %w", err)
	}
	defer unlock()
	old, err := readKey(filepath.Join(dir, serviceAccountFile))
	if errors.Is(err, fs.ErrNotExist) {
		return makeServiceAccountKey(dir) // the space never started
	}
	if err != nil {
		return fmt.Errorf("rotate service-account key: %w", err)
	}
	var retired []RetiredKey
	if overlap > 0 {
		if retired, err = RetiredServiceAccountKeys(dir, now); err != nil {
			return err
		}
		retired = slices.DeleteFunc(retired, func(r RetiredKey) bool { return r.Key.Equal(&old.PublicKey) })
		retired = append(retired, RetiredKey{&old.PublicKey, now.Add(overlap)})
	}
	// First: until the next write, the old key is both.
	if err := writeRetired(dir, retired); err != nil {
		return err
	}
	return makeServiceAccountKey(dir)
}

// RetiredServiceAccountKeys returns the keys in dir that sign no more and whose tokens are accepted at that time.
func RetiredServiceAccountKeys(dir string, now time.Time) (retired []RetiredKey, err error) {
	path := filepath.Join(dir, retiredFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load retired service-account keys: %w", err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		until, err := time.Parse(time.RFC3339, block.Headers[retiredUntil])
		if err != nil {
			return nil, fmt.Errorf("load retired service-account keys: parse %s: %w", path, err)
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("load retired service-account keys: parse %s: %w", path, err)
		}
		if key, ok := parsed.(*ecdsa.PublicKey); ok && now.Before(until) {
			retired = append(retired, RetiredKey{key, until})
		}
	}
	return retired, nil
}

func writeRetired(dir string, retired []RetiredKey) error {
	var data []byte
	for _, r := range retired {
		der, err := x509.MarshalPKIXPublicKey(r.Key)
		if err != nil {
			return fmt.Errorf("encode retired service-account key: %w", err)
		}
		headers := map[string]string{retiredUntil: r.Until.UTC().Format(time.RFC3339)}
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: publicBlock, Headers: headers, Bytes: der})...)
	}
	if err := WriteFile(filepath.Join(dir, retiredFile), data); err != nil {
		return fmt.Errorf("retire service-account key: %w", err)
	}
	return nil
}
