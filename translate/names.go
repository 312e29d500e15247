// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
)

// Limits of the length of names on the host, in bytes.
const (
	LimitSubdomain = 253 // pods, config maps, secrets, claims, ...
	LimitLabel     = 63  // services
)

const (
	separator = "--"
	hashMark  = "---" // before a hash
)

// HostName returns the name of the host object for the virtual object namespace/name, with at most limit bytes (S3). It
// is unique among the objects of a kind.
//
// The name is "<space>--<namespace>--<name>" if that is short enough and unambiguous: the first two separators end the
// space and the namespace, so neither of these may contain one. Otherwise, it is "<cut>---<hash of the full identity>".
// In a plain name, a letter or digit follows the first "--"; in a hashed name, a third dash does. So the two forms
// never collide.
//
// Without a namespace, it is [Space.ClusterName], whatever the limit is.
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

// ClusterPrefix returns the prefix of the names of a space's cluster-scoped host objects. The name of a space contains
// no dot. So the host can tell by the prefix to which space an object belongs, and its policies rely on that.
func (s Space) ClusterPrefix() string { return s.Name + ClusterSeparator }

// ClusterSeparator ends the name of the space in [Space.ClusterPrefix].
const ClusterSeparator = "."

// ClusterName returns the name of the host object of a cluster-scoped virtual object: "<space>.<name>". A name that is
// too long, or that looks like a hashed name, becomes "<cut>---<hash>".
func (s Space) ClusterName(name string) string {
	plain := s.ClusterPrefix() + name
	if len(plain) <= LimitSubdomain && !strings.Contains(name, hashMark) {
		return plain
	}
	return s.ClusterPrefix() + Hashed(name, LimitSubdomain-len(s.ClusterPrefix()), "object", s.Name, name)
}

// TokenSecretName returns the name of the host secret with a pod's service account tokens. It is always a hashed name,
// so that no secret of the tenant can have it.
func (s Space) TokenSecretName(namespace, pod string) string {
	plain := strings.Join([]string{s.Name, namespace, pod, "token"}, separator)
	return Hashed(plain, LimitSubdomain, "token", s.Name, namespace, pod)
}

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Hashed truncates readable so that the hash of identity fits after it. With 128 bits of SHA-256, a tenant can't find
// two names that collide.
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
