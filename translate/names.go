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

const (
	separator = "--"
	hashMark  = "---" // before a hash
)

// HostName names the host object of the virtual object namespace/name in at most
// limit bytes (S3). No two of one kind have the same.
//
// The name is "<space>--<namespace>--<name>" where that is short enough and reads
// back one way only: the first separators end the space and the namespace, so
// neither may hold one. All others become "<cut>---<hash of the full identity>":
// in a plain name a letter or digit follows the first "--", in a hashed one a
// third dash, so that the two forms never meet.
//
// Without a namespace it is [Space.ClusterName], whatever the limit.
func (s Space) HostName(namespace, name string, limit int) string {
	if namespace == "" {
		return s.ClusterName(name)
	}
	plain := strings.Join([]string{s.Name, namespace, name}, separator)
	if len(plain) <= limit && !strings.Contains(s.Name, separator) && !strings.Contains(namespace, separator) && !strings.HasPrefix(name, "-") {
		return plain
	}
	return Hashed(plain, limit, "object", s.Name, namespace, name)
}

// ClusterPrefix begins the names of a space's host objects that are in no
// namespace. No space's name holds a dot: the host can tell by it alone whose an
// object is, and holds spaces' accounts to it.
func (s Space) ClusterPrefix() string { return s.Name + ClusterSeparator }

// ClusterSeparator ends the space in [Space.ClusterPrefix].
const ClusterSeparator = "."

// ClusterName names the host object of a virtual object that is in no namespace:
// "<space>.<name>", or with "<cut>---<hash>" for a name that is too long, or that
// could be meant for one with a hash.
func (s Space) ClusterName(name string) string {
	plain := s.ClusterPrefix() + name
	if len(plain) <= LimitSubdomain && !strings.Contains(name, hashMark) {
		return plain
	}
	return s.ClusterPrefix() + Hashed(name, LimitSubdomain-len(s.ClusterPrefix()), "object", s.Name, name)
}

// TokenSecretName names the host secret that holds a pod's service account
// tokens. It is always in the hashed form: no secret of the tenant's can bear it.
func (s Space) TokenSecretName(namespace, pod string) string {
	plain := strings.Join([]string{s.Name, namespace, pod, "token"}, separator)
	return Hashed(plain, LimitSubdomain, "token", s.Name, namespace, pod)
}

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hashed cuts readable to what fits beside the hash of identity. 128 bits of
// SHA-256 leave a tenant no way to search for two names that meet.
func Hashed(readable string, limit int, identity ...string) string {
	digest := sha256.New()
	for _, part := range identity {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		digest.Write(size[:])
		digest.Write([]byte(part))
	}
	sum := hashMark + nameEncoding.EncodeToString(digest.Sum(nil)[:16])
	for strings.Contains(readable, separator) {
		readable = strings.ReplaceAll(readable, separator, "-")
	}
	if left := limit - len(sum); len(readable) > left {
		readable = readable[:left]
	}
	return strings.TrimRight(readable, "-.") + sum
}
