// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berth-dev/berth/vcluster/pki"
)

// SpaceOf is the space whose token a request says that it bears, "" if it says none. Nothing is verified: anybody can
// make a token that names any space.
func SpaceOf(r *http.Request) string {
	text := bearer(r)
	if len(text) > maxToken {
		return ""
	}
	_, rest, _ := strings.Cut(text, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(data, &claims) != nil {
		return ""
	}
	return pki.SpaceOfIssuer(claims.Issuer)
}
