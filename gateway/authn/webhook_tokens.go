// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
)

// maxReviewedToken is the maximum length of tokens for the webhook, in bytes. Those of Keystone have some 200.
const maxReviewedToken = 8 << 10

// bootstrapToken is the form of bootstrap tokens, by which nodes join a cluster such as the host.
var bootstrapToken = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// mayBeReviewed reports whether a token may be sent to the webhook, so that whoever runs the webhook doesn't get tokens that are good
// elsewhere. A JSON web token with an issuer is for that issuer to verify: those of spaces' ServiceAccounts, of the host's, and of OpenID
// Connect providers are such. So is one whose claims can't be read. A JSON web token without an issuer may be one of Keystone's.
func mayBeReviewed(token string) bool {
	printable := !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
	if token == "" || len(token) > maxReviewedToken || !printable || bootstrapToken.MatchString(token) {
		return false
	}
	parts := strings.Split(token, ".")
	if !isObject(parts[0]) {
		return true // no JSON web token
	}
	if len(parts) != 3 {
		return false
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return false
	}
	claims := map[string]json.RawMessage{}
	if json.Unmarshal(data, &claims) != nil {
		return false
	}
	for name := range claims {
		if strings.EqualFold(name, "iss") {
			return false
		}
	}
	return true
}

// isObject reports whether a part of a token is a JSON object.
func isObject(part string) bool {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "="))
	return err == nil && json.Unmarshal(data, &map[string]json.RawMessage{}) == nil
}
