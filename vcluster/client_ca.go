// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"crypto/x509"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/berth-dev/berth/vcluster/pki"
)

// clientCA lets an API server ask, for each client, whom the space's CA
// trusts at that moment.
type clientCA struct{ ca *pki.CA }

var _ dynamiccertificates.CAContentProvider = clientCA{}

func (clientCA) Name() string { return "client-ca" }

func (c clientCA) AddListener(l dynamiccertificates.Listener) { c.ca.OnRenewal(l.Enqueue) }

func (c clientCA) CurrentCABundleContent() []byte { return c.ca.PEM() }

func (c clientCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return c.ca.Verify(x509.ExtKeyUsageClientAuth), true
}
