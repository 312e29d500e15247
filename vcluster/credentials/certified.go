// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/lru"
)

// certificatesKnown is how many certificates a space remembers at most, at some
// 600 bytes each.
const certificatesKnown = 512

// certified knows clients by certificates that were verified before. Upstream
// verifies a client's certificate anew for each of its requests, which took a
// seventh of the CPU time of a write.
//
// It has an opinion only of certificates that the space's CA signed
// itself, and that are good: whatever else comes, upstream judges.
type certified struct {
	verify x509request.VerifyOptionFunc
	known  *lru.Cache // of proof to *verified
}

// proof is what a verification is about: which certificate, and whom the space
// trusted. Other roots, as after the CA was renewed, are another proof.
type proof struct {
	roots *x509.CertPool
	leaf  [sha256.Size]byte // of the whole certificate
}

type verified struct {
	as          *authenticator.Response
	from, until time.Time // in which all of its chain is valid
}

// RememberCertificates puts a memory of verified certificates before upstream.
func RememberCertificates(verify x509request.VerifyOptionFunc, upstream authenticator.Request) authenticator.Request {
	c := &certified{verify: verify, known: lru.New(certificatesKnown)}
	return union.New(group.NewAuthenticatedGroupAdder(c), upstream)
}

func (c *certified) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := c.verify()
	if !ok {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	about := proof{roots: options.Roots, leaf: sha256.Sum256(leaf.Raw)}
	remembered, _ := c.known.Get(about)
	if v, ok := remembered.(*verified); ok {
		valid := !options.CurrentTime.Before(v.from) && !options.CurrentTime.After(v.until)
		return v.as, valid, nil
	}
	v, ok := verifyOnce(leaf, options)
	if !ok {
		return nil, false, nil
	}
	c.known.Add(about, v)
	return v.as, true, nil
}

// verifyOnce does what upstream does with one certificate.
func verifyOnce(leaf *x509.Certificate, options x509.VerifyOptions) (*verified, bool) {
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, false
	}
	for _, chain := range chains {
		as, ok, err := x509request.CommonNameUserConversion.User(chain)
		if err != nil || !ok {
			continue
		}
		v := &verified{as: as, from: leaf.NotBefore, until: leaf.NotAfter}
		for _, cert := range chain {
			if cert.NotBefore.After(v.from) {
				v.from = cert.NotBefore
			}
			if cert.NotAfter.Before(v.until) {
				v.until = cert.NotAfter
			}
		}
		return v, true
	}
	return nil, false
}
