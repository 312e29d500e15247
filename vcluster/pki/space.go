// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"strings"
)

const spaceCAPrefix = "berth-space-"

// SpaceCA is the name of the CA that issues the client certificates of a space.
func SpaceCA(space string) string { return spaceCAPrefix + space }

// SpaceOf is the space that a client certificate names in its issuer, "" if it names
// none. Nothing is verified: anybody can make a certificate that names any issuer.
func SpaceOf(client *x509.Certificate) string {
	if space, ok := strings.CutPrefix(client.Issuer.CommonName, spaceCAPrefix); ok {
		return space
	}
	return ""
}

const issuerPrefix = "https://kubernetes.default.svc.cluster.local/spaces/"

// Issuer is what the service-account tokens of a space say of their origin: a URL that leads to the space's API from
// its pods, however clients outside reach it.
func Issuer(space string) string { return issuerPrefix + space }

// SpaceOfIssuer is the space whose tokens say that they are of issuer, "" if it is that of no space.
func SpaceOfIssuer(issuer string) string {
	if space, ok := strings.CutPrefix(issuer, issuerPrefix); ok {
		return space
	}
	return ""
}
