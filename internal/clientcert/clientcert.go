// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientcert verifies client certificates, and remembers those that are good. Upstream verifies the certificate of a client anew
// for each request, which took a seventh of the CPU time of a write.
package clientcert

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/lru"
)

// remembered is how many certificates a [Verifier] remembers at most, at some 600 bytes each.
const remembered = 512

// Verifier implements [authenticator.Request]. It decides on certificates that a CA which it trusts has signed itself, and that are valid;
// others are for somebody else. It is safe for concurrent use.
type Verifier struct {
	options x509request.VerifyOptionFunc
	convert x509request.UserConversion
	known   *lru.Cache // of proof to *verified
}

// New returns a verifier that trusts what options says at the time of a request. convert says who a certificate is of.
func New(options x509request.VerifyOptionFunc, convert x509request.UserConversion) *Verifier {
	return &Verifier{options: options, convert: convert, known: lru.New(remembered)}
}

// proof is what a verification is about: which certificate, and whom the verifier trusted. Other roots, as after the CA was renewed, are
// another proof.
type proof struct {
	roots *x509.CertPool
	leaf  [sha256.Size]byte // of the whole certificate
}

type verified struct {
	as          *authenticator.Response
	from, until time.Time // in which all of its chain is valid
}

// AuthenticateRequest returns who a request's certificate is of. The error is that of the conversion of a good certificate.
func (v *Verifier) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := v.options()
	if !ok {
		return nil, false, nil
	}
	if options.CurrentTime.IsZero() { // as in options of upstream's files with CAs; the check of what is known needs a time
		options.CurrentTime = time.Now()
	}
	leaf := r.TLS.PeerCertificates[0]
	about := proof{roots: options.Roots, leaf: sha256.Sum256(leaf.Raw)}
	remembered, _ := v.known.Get(about)
	if known, ok := remembered.(*verified); ok {
		valid := !options.CurrentTime.Before(known.from) && !options.CurrentTime.After(known.until)
		return known.as, valid, nil
	}
	known, err := v.verify(leaf, options)
	if err != nil || known == nil {
		return nil, false, err
	}
	v.known.Add(about, known)
	return known.as, true, nil
}

// verify does what upstream does with one certificate. It returns nil if the certificate isn't good.
func (v *Verifier) verify(leaf *x509.Certificate, options x509.VerifyOptions) (known *verified, refused error) {
	chains, _ := leaf.Verify(options) // if there are none, others may still trust the certificate
	for _, chain := range chains {
		as, ok, err := v.convert.User(chain)
		if err != nil || !ok {
			refused = err
			continue
		}
		known := &verified{as: as, from: leaf.NotBefore, until: leaf.NotAfter}
		for _, cert := range chain {
			if cert.NotBefore.After(known.from) {
				known.from = cert.NotBefore
			}
			if cert.NotAfter.Before(known.until) {
				known.until = cert.NotAfter
			}
		}
		return known, nil
	}
	return nil, refused
}
