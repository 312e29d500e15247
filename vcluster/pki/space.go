// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"strings"
)

const spaceAuthority = "berth-space-"

// SpaceAuthority is the name of the authority that issues the client certificates
// of a space.
func SpaceAuthority(space string) string { return spaceAuthority + space }

// SpaceOf is the space that a client certificate names in its issuer, "" if it names
// none. Nothing is verified: anybody can make a certificate that names any issuer.
func SpaceOf(client *x509.Certificate) string {
	if space, ok := strings.CutPrefix(client.Issuer.CommonName, spaceAuthority); ok {
		return space
	}
	return ""
}
