// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	clientLifetime = 365 * 24 * time.Hour
	serverLifetime = 365 * 24 * time.Hour
)

// Pair is a certificate and its key, both PEM.
type Pair struct {
	Cert, Key []byte
}

// TLS returns the pair for use in a [tls.Config].
func (p Pair) TLS() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate: %w", err)
	}
	return cert, nil
}

// Client issues a certificate by which an API server that trusts the authority
// knows the bearer as user in groups. It is valid for a year.
func (ca *CA) Client(user string, groups []string) (Pair, error) {
	if user == "" {
		return Pair{}, errors.New("issue client certificate: user is empty")
	}
	p, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		NotAfter:    time.Now().Add(clientLifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Pair{}, fmt.Errorf("issue client certificate for %s: %w", user, err)
	}
	return p, nil
}

// Server issues a certificate for hosts, which are DNS names or IP addresses.
// It is valid for a year.
func (ca *CA) Server(hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("issue server certificate: no host")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		NotAfter:    time.Now().Add(serverLifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	p, err := ca.issue(template)
	if err != nil {
		return Pair{}, fmt.Errorf("issue server certificate for %s: %w", hosts[0], err)
	}
	return p, nil
}

func (ca *CA) issue(template *x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, err
	}
	template.NotBefore = time.Now().Add(-backdate)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	_, certPEM, err := sign(template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: certPEM, Key: keyPEM}, nil
}

func sign(template, parent *x509.Certificate, pub *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, []byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), nil
}
