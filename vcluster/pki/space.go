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
