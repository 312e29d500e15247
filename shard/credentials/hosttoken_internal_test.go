// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/identity"
)

// O9: a token of the host has the audience of Berth.
func TestTokensOfTheHostAreKnownByTheirAudience(t *testing.T) {
	const robot = "system:serviceaccount:tenant-system:robot"
	for claims, want := range map[string]HostToken{
		`{"aud": ["berth.dev"], "sub": "` + robot + `", "exp": 1800000000}`:    {Name: robot, Expires: time.Unix(1800000000, 0)},
		`{"aud": "berth.dev", "sub": "` + robot + `"}`:                         {Name: robot},
		`{"aud": ["other", "berth.dev"], "sub": "alice"}`:                      {Name: "alice"},
		`{"aud": ["https://kubernetes.default.svc"], "sub": "x"}`:              {},
		`{"aud": [], "sub": "x"}`:                                              {},
		`{"sub": "berth.dev"}`:                                                 {},
		`{"aud": {"berth.dev": 1}}`:                                            {},
		`{"aud": ["berth.dev"], "exp": "soon"}`:                                {},
		`not JSON`:                                                             {},
		`{"aud": ["berth.dev"], "x": "` + strings.Repeat("x", maxToken) + `"}`: {},
	} {
		text := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
		token, ok := HostTokenOf(stranger(t.Context(), text, "192.0.2.1"))
		if ok != (want != HostToken{}) || ok && (token.Text != text || token.Name != want.Name || !token.Expires.Equal(want.Expires)) {
			t.Errorf("%.100s: %v, %v", claims, token, ok)
		}
	}
	if _, ok := HostTokenOf(stranger(t.Context(), "", "192.0.2.1")); ok {
		t.Error("no token is one of the host")
	}
}

// O9: clients that don't count as use may be ServiceAccounts of the host, which are known by the names that they have in the space.
func TestClientsMayBeServiceAccountsOfTheHost(t *testing.T) {
	r := stranger(t.Context(), madeUp(1), "192.0.2.1")
	r = r.WithContext(identity.With(r.Context(), &identity.Identity{Name: "system:serviceaccount:tenant-system:robot", Proof: identity.HostServiceAccount}))
	client := ClientOf(r)
	user, groups := client.GetName(), client.GetGroups()
	if user != "berth:host:serviceaccount:tenant-system:robot" || !slices.Contains(groups, "berth:host:serviceaccounts") || !slices.Contains(groups, "system:authenticated") {
		t.Errorf("the client is %s of %v", user, groups)
	}
}
