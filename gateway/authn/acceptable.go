// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/berth-dev/berth/identity"
)

// maxReviewed limits what a webhook or a provider says of a user, in bytes. It is remembered.
const maxReviewed = 8 << 10

// kept returns the extra fields that an identity has, for a webhook that authorizes. Some mean something to Kubernetes or to Berth.
func kept(extra map[string][]string) map[string][]string {
	fields := map[string][]string{}
	for key, values := range extra {
		domain, _, _ := strings.Cut(strings.ToLower(key), "/") // as impersonation has keys
		if domain == "berth.dev" || domain == "authentication.kubernetes.io" || strings.HasSuffix(domain, ".berth.dev") {
			continue
		}
		values = slices.Clone(values)
		slices.Sort(values)
		fields[strings.ToLower(key)] = values
	}
	return fields
}

// acceptable refuses users that nobody can be, and those that would take too much memory.
func acceptable(who *identity.Identity) error {
	texts := append([]string{who.Name, who.UID}, who.Groups...)
	for _, key := range slices.Sorted(maps.Keys(who.Extra)) {
		texts = append(append(texts, key), who.Extra[key]...)
	}
	size := 0
	for _, text := range texts {
		size += len(text)
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
			return refused("your token is of a user or group with a control character in the name, %.100q; ask your admin to rename it", text)
		}
	}
	const each = 16 // of a text, at least
	switch {
	case who.Name == "":
		return refused("your token is of a user without a name; ask your admin for another token")
	case size+each*len(texts) > maxReviewed:
		return refused("your token is of a user with %d groups, roles, and other names of %d bytes, and may be of one with %d bytes; ask your admin for a token with fewer roles", len(texts), size, maxReviewed)
	}
	return nil
}
