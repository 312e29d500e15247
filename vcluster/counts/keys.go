// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package counts

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
)

// bitsOf is the length of an RSA key. Keys of other kinds have no length to choose.
func bitsOf(key crypto.PublicKey) int {
	if k, ok := key.(*rsa.PublicKey); ok {
		return k.N.BitLen()
	}
	return 0
}

// longestKey is that of the certificates in a bundle, by which a server's is verified.
func longestKey(bundle []byte) int {
	longest := 0
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return longest
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			longest = max(longest, bitsOf(c.PublicKey))
		}
	}
}
