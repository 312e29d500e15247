// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// AdminGroup is the group of the admins of a cluster that Berth runs. RBAC binds it to cluster-admin in each cluster,
// so that it can be taken back, unlike system:masters, which no rule limits (X2).
const AdminGroup = "berth:admins"

// Bounds of the life of a client's certificate. Nobody can take one back before its end but by a new authority, which
// ends all others too: a week is the longest that one which was lost may be of use.
const (
	ClientLifetime    = 24 * time.Hour
	MinClientLifetime = 10 * time.Minute
	MaxClientLifetime = 7 * 24 * time.Hour
)

const (
	serverLifetime = 90 * 24 * time.Hour
	// backdate allows for clocks that differ a little.
	backdate = 5 * time.Minute
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
// knows the bearer as user in groups. It is valid for [ClientLifetime].
func (ca *CA) Client(user string, groups []string) (Pair, error) {
	return ca.ClientFor(ClientLifetime, user, groups)
}

// ClientFor is Client with another life, of [MaxClientLifetime] at most.
func (ca *CA) ClientFor(life time.Duration, user string, groups []string) (Pair, error) {
	if user == "" {
		return Pair{}, errors.New("issue client certificate: user is empty")
	}
	p, err := ca.issue(min(life, MaxClientLifetime), &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Pair{}, fmt.Errorf("issue client certificate for %s: %w", user, err)
	}
	return p, nil
}

// Server issues a certificate for hosts, which are DNS names or IP addresses.
// It is valid for 90 days: see [CA.Serving] for one that does not end.
func (ca *CA) Server(hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("issue server certificate: no host")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	p, err := ca.issue(serverLifetime, template)
	if err != nil {
		return Pair{}, fmt.Errorf("issue server certificate for %s: %w", hosts[0], err)
	}
	return p, nil
}

func (ca *CA) issue(lifetime time.Duration, template *x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return Pair{}, err
	}
	ca.mu.Lock()
	defer ca.mu.Unlock()
	err = ca.renew()
	now := ca.clock.Now()
	if err != nil && (now.After(ca.cert.NotAfter) || ca.isRevoked(ca.cert)) {
		return Pair{}, err
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	certPEM, _, err := sign(template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: certPEM, Key: keyPEM}, nil
}

// Signer returns what the authority signs with now, for requests that are signed elsewhere.
func (ca *CA) Signer() (*x509.Certificate, crypto.Signer, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	if err := ca.renew(); err != nil && (ca.clock.Now().After(ca.cert.NotAfter) || ca.isRevoked(ca.cert)) {
		return nil, nil, err
	}
	return ca.cert, ca.key, nil
}

// newAuthority makes a key and the certificate that it signs for itself.
func newAuthority(name string, now time.Time) (*ecdsa.PrivateKey, *x509.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
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
	_, cert, err := sign(template, template, &key.PublicKey, key)
	return key, cert, err
}

// newSerial returns a random serial number of 127 bits, as RFC 5280 asks for.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func sign(template, parent *x509.Certificate, pub *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, *x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), cert, nil
}
