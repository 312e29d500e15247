// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"net/http"
	"slices"
	"time"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// HostToken is a token with the audience of Berth, which only tokens of ServiceAccounts of the host have: in a space's API, the
// audience is of no use. Nothing of the token is verified: anybody can make one.
type HostToken struct {
	Text string
	// Name is the ServiceAccount, as system:serviceaccount:NAMESPACE:NAME.
	Name string
	// Expires is when the token expires; zero if it does not say so.
	Expires time.Time
}

// HostTokenOf returns the token of a request if it has the audience of Berth (O9).
func HostTokenOf(r *http.Request) (token HostToken, ok bool) {
	parsed := claimsOf(r)
	if !slices.Contains(parsed.Audience, v1alpha1.TokenAudience) {
		return HostToken{}, false
	}
	token = HostToken{Text: bearer(r), Name: parsed.Subject}
	if parsed.Expiry != nil {
		token.Expires = parsed.Expiry.Time()
	}
	return token, true
}
