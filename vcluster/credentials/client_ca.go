// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/x509"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientCA lets an API server ask, for each client, whom the space's CA
// trusts at that moment.
type ClientCA struct{ CA *pki.CA }

var _ dynamiccertificates.CAContentProvider = ClientCA{}

// Name names the CA in errors.
func (ClientCA) Name() string { return "client-ca" }

// AddListener has l called when the certificate is renewed.
func (c ClientCA) AddListener(l dynamiccertificates.Listener) { c.CA.OnRenewal(l.Enqueue) }

// CurrentCABundleContent returns the certificate as PEM.
func (c ClientCA) CurrentCABundleContent() []byte { return c.CA.PEM() }

// VerifyOptions are those for client certificates of the CA.
func (c ClientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return c.CA.Verify(x509.ExtKeyUsageClientAuth), true
}
