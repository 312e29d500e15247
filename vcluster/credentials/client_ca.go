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

func (ClientCA) Name() string { return "client-ca" }

func (c ClientCA) AddListener(l dynamiccertificates.Listener) { c.CA.OnRenewal(l.Enqueue) }

func (c ClientCA) CurrentCABundleContent() []byte { return c.CA.PEM() }

func (c ClientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return c.CA.Verify(x509.ExtKeyUsageClientAuth), true
}
