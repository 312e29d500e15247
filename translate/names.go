// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// Limits of names on the host, in bytes.
const (
	LimitSubdomain = 253 // pods, config maps, secrets, claims, ...
	LimitLabel     = 63  // services
)

const separator = "--"

// HostName names the host object of the virtual object namespace/name
// (namespace is empty for cluster-scoped ones) in at most limit bytes (S3).
//
// The name is "<space>--<namespace>--<name>", or "<space>--<name>" without a
// namespace, where that is short enough and reads back one way only: the first
// separators end the space and the namespace, so neither may hold one, and a
// second one tells a namespace, so that the name of a cluster-scoped object may
// hold none either. All others become "<cut>---<hash of the full identity>": in a plain name a letter
// or digit follows the first "--", in a hashed one a third dash, so that the
// two forms never meet.
func (s Space) HostName(namespace, name string, limit int) string {
	parts, closed := []string{s.Name, name}, []string{s.Name, name}
	if namespace != "" {
		parts, closed = []string{s.Name, namespace, name}, []string{s.Name, namespace}
	}
	plain := strings.Join(parts, separator)
	if len(plain) <= limit && !ambiguous(closed) && !strings.HasPrefix(name, "-") {
		return plain
	}
	return hashed(plain, limit, append([]string{"object"}, parts...)...)
}

// TokenSecretName names the host secret that holds a pod's service account
// tokens. It is always in the hashed form: no secret of the tenant's can bear it.
func (s Space) TokenSecretName(namespace, pod string) string {
	plain := strings.Join([]string{s.Name, namespace, pod, "token"}, separator)
	return hashed(plain, LimitSubdomain, "token", s.Name, namespace, pod)
}

func ambiguous(parts []string) bool {
	for _, part := range parts {
		if strings.Contains(part, separator) {
			return true
		}
	}
	return false
}

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// hashed cuts readable to what fits beside the hash of identity. 128 bits of
// SHA-256 leave a tenant no way to search for two names that meet.
func hashed(readable string, limit int, identity ...string) string {
	digest := sha256.New()
	for _, part := range identity {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		digest.Write(size[:])
		digest.Write([]byte(part))
	}
	sum := "---" + nameEncoding.EncodeToString(digest.Sum(nil)[:16])
	for strings.Contains(readable, separator) {
		readable = strings.ReplaceAll(readable, separator, "-")
	}
	if room := limit - len(sum); len(readable) > room {
		readable = readable[:room]
	}
	return strings.TrimRight(readable, "-.") + sum
}
