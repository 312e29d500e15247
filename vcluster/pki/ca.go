// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
)

// CA is a certificate authority. It renews itself when it is used.
// Its methods may be called concurrently, also of several CAs on one directory.
type CA struct {
	dir, name string
	clock     clock.PassiveClock

	mu sync.Mutex
	authority
	listeners []func()
}

// authority is what the files of a CA say. ca.crt holds all that is trusted,
// ca.key the key that signs, and ca-next.key, while there is one, the key that
// will. Which certificate goes with a key, the keys tell. What ca-revoked.crt
// holds, while there is one, is trusted no more, and about to be replaced.
type authority struct {
	key, nextKey *ecdsa.PrivateKey
	cert, next   *x509.Certificate
	kept         []*x509.Certificate // all in ca.crt: cert and next among them
	revoked      []*x509.Certificate
	roots        *x509.CertPool // those of kept that are not revoked
	pem          []byte         // likewise
}

// OpenCA loads the authority that is kept in dir, or makes one there whose
// common name is name. An authority that is there but can't be read, or whose
// key is missing, is an error: making a new one would disown every certificate
// in use.
func OpenCA(dir, name string) (*CA, error) { return OpenCAWithClock(dir, name, clock.RealClock{}) }

// OpenCAWithClock is OpenCA by another clock than that of the machine.
func OpenCAWithClock(dir, name string, clock clock.PassiveClock) (*CA, error) {
	ca := &CA{dir: dir, name: name, clock: clock}
	err := ca.load()
	if errors.Is(err, errNoCA) {
		err = ca.make()
	}
	if err != nil {
		return nil, err
	}
	if err := ca.Check(); err != nil {
		return nil, err
	}
	return ca, nil
}

// Exists tells whether an authority is kept in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "ca.crt"))
	return err == nil
}

// PEM returns the certificates of the authority that are to be trusted: more
// than one while an old one gives way to a new one.
func (ca *CA) PEM() []byte {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	_ = ca.renew() // what is trusted stays so, and Check tells
	return slices.Clone(ca.pem)
}

// Verify returns how certificates are verified that the authority issued.
func (ca *CA) Verify(usage ...x509.ExtKeyUsage) x509.VerifyOptions {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	_ = ca.renew()
	return x509.VerifyOptions{Roots: ca.roots, KeyUsages: usage, CurrentTime: ca.clock.Now()}
}

// NotAfter is when the certificate ends that the authority signs with.
func (ca *CA) NotAfter() time.Time {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.cert.NotAfter
}

// OnRenewal has f called whenever other certificates are to be trusted than
// before. It must return at once, and not call the authority.
func (ca *CA) OnRenewal(f func()) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	ca.listeners = append(ca.listeners, f)
}

// Check tells what keeps the authority from renewing itself, nil if nothing
// does.
func (ca *CA) Check() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.renew()
}

// make makes the first authority of a directory.
func (ca *CA) make() error {
	if err := makeDir(ca.dir); err != nil {
		return err
	}
	unlock, err := lockKeys(ca.dir)
	if err != nil {
		return fmt.Errorf("make certificate authority: %w", err)
	}
	defer unlock()
	// Another may have made it meanwhile: a space that is prepared for its first start is often changed at the same time.
	if err := ca.load(); !errors.Is(err, errNoCA) {
		return err
	}
	key, cert, err := newAuthority(ca.name, ca.clock.Now())
	if err != nil {
		return fmt.Errorf("make certificate authority: %w", err)
	}
	// The key first: a crash between the two leaves a key alone, which the
	// next start replaces. A certificate alone would be an error for good.
	if err := ca.write("ca.key", key, []*x509.Certificate{cert}); err != nil {
		return err
	}
	return ca.load()
}

// write writes a key and then the certificates of ca.crt.
func (ca *CA) write(keyFile string, key *ecdsa.PrivateKey, kept []*x509.Certificate) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode key of certificate authority: %w", err)
	}
	if err := WriteFile(filepath.Join(ca.dir, keyFile), keyPEM); err != nil {
		return fmt.Errorf("write key of certificate authority: %w", err)
	}
	return ca.writeKept(kept)
}

func (ca *CA) writeKept(kept []*x509.Certificate) error {
	bundle, err := certutil.EncodeCertificates(kept...)
	if err != nil {
		return fmt.Errorf("encode certificate authority: %w", err)
	}
	if err := WriteFile(filepath.Join(ca.dir, "ca.crt"), bundle); err != nil {
		return fmt.Errorf("write certificate authority: %w", err)
	}
	return nil
}

var errNoCA = errors.New("no certificate authority")

// load reads the files anew.
func (ca *CA) load() error {
	a, err := loadAuthority(ca.dir)
	if err != nil {
		return fmt.Errorf("load certificate authority: %w", err)
	}
	renewed := !bytes.Equal(a.pem, ca.pem)
	ca.authority = a
	for _, f := range ca.listeners {
		if renewed {
			f()
		}
	}
	return nil
}

func loadAuthority(dir string) (a authority, err error) {
	path := filepath.Join(dir, "ca.crt")
	if a.kept, err = readCerts(path); errors.Is(err, fs.ErrNotExist) {
		return a, errNoCA
	}
	if err != nil {
		return a, err
	}
	if a.revoked, err = readCerts(filepath.Join(dir, revokedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if a.key, err = readKey(filepath.Join(dir, "ca.key")); err != nil {
		return a, err
	}
	if a.nextKey, err = readKey(filepath.Join(dir, "ca-next.key")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	a.roots = x509.NewCertPool()
	for _, c := range a.trusted() {
		a.roots.AddCert(c)
	}
	if a.pem, err = certutil.EncodeCertificates(a.trusted()...); err != nil {
		return a, fmt.Errorf("encode certificate authority: %w", err)
	}
	for _, c := range a.kept {
		if !c.IsCA {
			return a, fmt.Errorf("%s holds the certificate of %s, which is no authority", path, c.Subject.CommonName)
		}
		switch {
		case a.key.PublicKey.Equal(c.PublicKey):
			a.cert = c
		case a.nextKey != nil && a.nextKey.PublicKey.Equal(c.PublicKey):
			a.next = c
		}
	}
	if a.cert == nil {
		return a, fmt.Errorf("%s lacks the certificate of the authority whose key is %s", path, filepath.Join(dir, "ca.key"))
	}
	return a, nil
}

// trusted are the certificates that verify others.
func (a *authority) trusted() []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a.kept), a.isRevoked)
}

func (a *authority) isRevoked(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.revoked, c.Equal)
}

func readCerts(path string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return certs, nil
}
