// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"crypto/tls"
	"net/url"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/platform/certificate"
	"github.com/berth-dev/berth/platform/kubeconfig"
)

// openFiles reads the certificate of the API endpoint, if it comes from files.
func (p *Platform) openFiles() (err error) {
	if p.config.TLS.Cert != "" {
		host := ""
		if u, err := url.Parse(p.config.Advertise); err == nil {
			host = u.Hostname()
		}
		if p.files, err = certificate.Open(p.config.TLS, host, p.certificate.Get, clock.RealClock{}, p.logger); err != nil {
			return err
		}
	}
	return p.keepServerCA()
}

// keepServerCA updates what kubeconfigs trust (X2).
func (p *Platform) keepServerCA() error {
	if p.files == nil {
		return kubeconfig.KeepServerCA(p.config.DataDir, nil, true)
	}
	issuer, err := p.files.CA()
	if err != nil {
		return err
	}
	return kubeconfig.KeepServerCA(p.config.DataDir, issuer, false)
}

// serverCertificate returns the certificate for a connection to the API endpoint.
func (p *Platform) serverCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p.files != nil {
		return p.files.Get(hello)
	}
	return p.certificate.Get(hello)
}

// notAfter returns when the certificate of the API endpoint expires.
func (p *Platform) notAfter() time.Time {
	if p.files != nil {
		return p.files.NotAfter()
	}
	return p.certificate.NotAfter()
}
