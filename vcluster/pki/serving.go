// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"
)

// servingRenewal is when a serving certificate is renewed, as a fraction of its
// life: a month before its end.
const servingRenewal = 2.0 / 3

// Serving is a server's certificate, renewed in time by the handshakes that use
// it. Its methods may be called concurrently.
type Serving struct {
	ca    *CA
	issue func() (Pair, error)

	mu      sync.Mutex
	current *tls.Certificate
}

// Serving issues a certificate for hosts, which are DNS names or IP addresses.
func (ca *CA) Serving(hosts ...string) (*Serving, error) {
	s := &Serving{ca: ca, issue: func() (Pair, error) { return ca.Server(hosts...) }}
	return s, s.Check()
}

// Calling is a client's certificate, issued and renewed by the handshakes that
// use it. Its methods may be called concurrently.
type Calling struct{ kept Serving }

// Calling is by what servers that trust the authority know the bearer as user.
func (ca *CA) Calling(user string) *Calling {
	return &Calling{Serving{ca: ca, issue: func() (Pair, error) { return ca.Client(user, nil) }}}
}

// Get is for [tls.Config.GetClientCertificate].
func (c *Calling) Get(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.kept.Get(nil) }

// Get is for [tls.Config.GetCertificate].
func (s *Serving) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.renew(); err != nil && (s.current == nil || s.ca.clock.Now().After(s.current.Leaf.NotAfter)) {
		return nil, err
	}
	return s.current, nil
}

// NotAfter is when the certificate ends that is in use.
func (s *Serving) NotAfter() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return time.Time{}
	}
	return s.current.Leaf.NotAfter
}

// Check renews the certificate if it is time, and tells what keeps it from that.
func (s *Serving) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renew()
}

func (s *Serving) renew() error {
	if s.current != nil && s.ca.clock.Now().Before(after(servingRenewal, s.current.Leaf)) {
		return nil
	}
	pair, err := s.issue()
	if err != nil {
		return err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return fmt.Errorf("use certificate: %w", err)
	}
	s.current = &certificate
	return nil
}
