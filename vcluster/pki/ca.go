// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// backdate allows for clocks that differ a little.
	backdate = 5 * time.Minute
)

// CA is a certificate authority. Its methods may be called concurrently.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// OpenCA loads the authority that is kept in dir, or makes one there whose
// common name is name. An authority that is there but can't be read, or whose
// key is missing, is an error: making a new one would disown every certificate
// in use.
func OpenCA(dir, name string) (*CA, error) {
	certPath, keyPath := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	ca, err := loadCA(certPath, keyPath)
	if err == nil {
		return ca, nil
	}
	if !errors.Is(err, errNoCA) {
		return nil, fmt.Errorf("load certificate authority: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	ca, err = newCA(name)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		return nil, fmt.Errorf("encode key of certificate authority: %w", err)
	}
	// The key first: a crash between the two leaves a key alone, which the
	// next start replaces. A certificate alone would be an error for good.
	if err := WriteFile(keyPath, keyPEM); err != nil {
		return nil, fmt.Errorf("write key of certificate authority: %w", err)
	}
	if err := WriteFile(certPath, ca.pem); err != nil {
		return nil, fmt.Errorf("write certificate authority: %w", err)
	}
	return ca, nil
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return append([]byte(nil), ca.pem...) }

var errNoCA = errors.New("no certificate authority")

func loadCA(certPath, keyPath string) (*CA, error) {
	data, err := os.ReadFile(certPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoCA
	}
	if err != nil {
		return nil, err
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", certPath, err)
	}
	key, err := readKey(keyPath)
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 || !certs[0].IsCA || !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("%s is not the certificate of the authority whose key is %s", certPath, keyPath)
	}
	return &CA{cert: certs[0], key: key, pem: data}, nil
}

func newCA(name string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, pem, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key, pem: pem}, nil
}

// newSerial returns a random serial number of 127 bits, as RFC 5280 asks for.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
