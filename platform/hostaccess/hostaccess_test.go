// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/testtokens"
)

// S3: a token is renewed after half of its life, and not before, however often a pod is made; what failed is due until
// it succeeds; and one of an account that was made anew is due at once.
func TestATokenIsRenewedWhenItIsDue(t *testing.T) {
	host := testtokens.New()
	a := New(host.Client(t), nil, host.Clock)
	for _, step := range []struct {
		reason string
		do     func()
		due    bool
		want   string
	}{
		{"the first", func() {}, false, "token-1"},
		{"a moment later", func() { host.Clock.Step(time.Second) }, false, "token-1"},
		{"after a while", func() { host.Clock.Step(29 * time.Minute) }, false, "token-1"},
		{"when it is due, and the host is out of reach", func() { host.Clock.Step(2 * time.Minute); host.Down = true }, true, ""},
		{"a minute later", func() { host.Clock.Step(time.Minute) }, true, ""},
		{"when the host is back", func() { host.Down = false }, true, "token-2"},
		{"after hours of sleep", func() { host.Clock.Step(9 * time.Hour) }, true, "token-3"},
		{"when the account was made anew", func() { a.Expire("one") }, true, "token-4"},
		{"when the space is another", func() { a.Forget("one"); a.Expire("one") }, false, "token-5"},
	} {
		step.do()
		if due := a.IsDue("one"); due != step.due {
			t.Errorf("%s: it is due: %t", step.reason, due)
		}
		token, err := a.Token(t.Context(), "one")
		if token != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%s: got %q (%v), want %q", step.reason, token, err, step.want)
		}
		if err == nil && a.IsDue("one") {
			t.Errorf("%s: the new one is due", step.reason)
		}
	}
}
