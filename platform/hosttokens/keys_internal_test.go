// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hosttokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"testing"

	jose "gopkg.in/go-jose/go-jose.v2"
)

// O9: only public keys with an ID verify tokens, never one that also signs.
func TestOnlyPublicKeysOfTheHostVerify(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := jose.JSONWebKey{Key: &private.PublicKey, KeyID: "public"}
	for reason, c := range map[string]struct {
		keys []jose.JSONWebKey
		want int
	}{
		"a public key":   {[]jose.JSONWebKey{public}, 1},
		"a secret":       {[]jose.JSONWebKey{{Key: []byte("secret"), KeyID: "secret"}}, 0},
		"a private key":  {[]jose.JSONWebKey{{Key: private, KeyID: "private"}}, 0},
		"no ID":          {[]jose.JSONWebKey{{Key: &private.PublicKey}}, 0},
		"no key":         {nil, 0},
		"one and others": {[]jose.JSONWebKey{public, {Key: []byte("secret"), KeyID: "secret"}}, 1},
	} {
		data, err := json.Marshal(jose.JSONWebKeySet{Keys: c.keys})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := parseKeys(data); len(found) != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: %d keys, %v", reason, len(found), err)
		}
	}
	if _, err := parseKeys([]byte("{")); err == nil {
		t.Error("what is not JSON is a key set")
	}
}

// O9: the keys are read again for an unknown key, at most once per interval. Known keys remain while the host fails, but not after
// the platform lost the right to read them.
func TestTheKeysOfTheHostAreReadAgain(t *testing.T) {
	e := newEnv(t)
	good := func(want string) {
		t.Helper()
		if ok, err := e.verify(t, "solar", e.token(t, "robot", "berth.dev"), client1); !ok || err != nil {
			t.Errorf("a good token %s: %v, %v", want, ok, err)
		}
	}
	forged := 0
	reviewed := func() int {
		forged++
		before := e.count()
		if ok, _ := e.verify(t, "solar", e.forgedWith("eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ", forged), client1); ok {
			t.Error("a forged token is good")
		}
		return e.count() - before
	}
	good("at first")
	for range 3 {
		if n := reviewed(); n != 0 {
			t.Errorf("%d forged tokens are reviewed", n)
		}
	}
	if e.keys != 1 {
		t.Errorf("the keys were read %d times", e.keys)
	}
	for i, c := range []struct {
		status   int32
		reviewed int
	}{{http.StatusInternalServerError, 0}, {0, 0}, {http.StatusForbidden, 1}, {http.StatusInternalServerError, 1}, {0, 0}, {http.StatusNotFound, 1}} {
		e.jwks.Store(c.status)
		e.clock.SetTime(e.clock.Now().Add(keysInterval))
		if n := reviewed(); n != c.reviewed {
			t.Errorf("status %d: %d forged tokens are reviewed, want %d", c.status, n, c.reviewed)
		}
		good("after " + http.StatusText(int(c.status)))
		if e.keys != i+2 {
			t.Errorf("the keys were read %d times, want %d", e.keys, i+2)
		}
	}
}
