// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ClientOf returns the user that a request has in its space, after [Verifier.Verify] or the gateway has accepted it: that of the identity
// that the gateway has proved, or of its certificate, otherwise that of its token. The name is empty if it has neither.
func ClientOf(r *http.Request) user.Info {
	if proven := access.UserOf(identity.From(r.Context())); proven != nil {
		return proven
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		subject := r.TLS.PeerCertificates[0].Subject
		return &user.DefaultInfo{Name: subject.CommonName, Groups: append([]string{user.AllAuthenticated}, subject.Organization...)}
	}
	parsed := claimsOf(r)
	namespace, _, err := serviceaccount.SplitUsername(parsed.Subject)
	if err != nil {
		return &user.DefaultInfo{}
	}
	return &user.DefaultInfo{Name: parsed.Subject, Groups: append([]string{user.AllAuthenticated}, serviceaccount.MakeGroupNames(namespace)...)}
}

// SpaceOf returns the space that the token of a request names, or "". It verifies nothing: anybody can make a token
// that names any space.
func SpaceOf(r *http.Request) string { return pki.SpaceOfIssuer(claimsOf(r).Issuer) }

// claims are the claims of a token.
type claims struct {
	Issuer   string           `json:"iss"`
	Subject  string           `json:"sub"`
	Audience jwt.Audience     `json:"aud"`
	Expiry   *jwt.NumericDate `json:"exp"`
}

// claimsOf returns the claims of a request's token; the zero value if it has no token.
func claimsOf(r *http.Request) (parsed claims) {
	text := bearer(r)
	if len(text) > maxToken {
		return claims{}
	}
	_, rest, _ := strings.Cut(text, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return claims{}
	}
	if json.Unmarshal(data, &parsed) != nil {
		return claims{}
	}
	return parsed
}
