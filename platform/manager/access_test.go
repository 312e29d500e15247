// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// tokens issues tokens by a clock, in place of the host, and can be out of reach: an hour does not pass in a test.
type tokens struct {
	clock  *clocktesting.FakeClock
	issued int
	down   bool
}

func (h *tokens) access(t *testing.T) *hostAccess {
	t.Helper()
	h.clock = clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	create := func(_ context.Context, _ client.Client, _ string, _, request client.Object, _ ...client.SubResourceCreateOption) error {
		if h.down {
			return errors.New("the host is out of reach")
		}
		h.issued++
		r := request.(*authenticationv1.TokenRequest)
		r.Status.Token = fmt.Sprintf("token-%d", h.issued)
		r.Status.ExpirationTimestamp = metav1.NewTime(h.clock.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
		return nil
	}
	host, err := client.NewWithWatch(&rest.Config{}, client.Options{Scheme: scheme.Scheme, Mapper: meta.NewDefaultRESTMapper(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return &hostAccess{host: interceptor.NewClient(host, interceptor.Funcs{SubResourceCreate: create}), clock: h.clock}
}

// S3: a token is renewed after half of its life, and not before, however often a pod is made; what failed is due until
// it succeeds; and one of an account that was made anew is due at once.
func TestATokenIsRenewedWhenItIsDue(t *testing.T) {
	host := &tokens{}
	a := host.access(t)
	for _, step := range []struct {
		reason string
		do     func()
		due    bool
		want   string
	}{
		{"the first", func() {}, false, "token-1"},
		{"a moment later", func() { host.clock.Step(time.Second) }, false, "token-1"},
		{"after a while", func() { host.clock.Step(29 * time.Minute) }, false, "token-1"},
		{"when it is due, and the host is out of reach", func() { host.clock.Step(2 * time.Minute); host.down = true }, true, ""},
		{"a minute later", func() { host.clock.Step(time.Minute) }, true, ""},
		{"when the host is back", func() { host.down = false }, true, "token-2"},
		{"after hours of sleep", func() { host.clock.Step(9 * time.Hour) }, true, "token-3"},
		{"when the account was made anew", func() { a.expire("one") }, true, "token-4"},
		{"when the space is another", func() { a.forget("one"); a.expire("one") }, false, "token-5"},
	} {
		step.do()
		if due := a.isDue("one"); due != step.due {
			t.Errorf("%s: it is due: %t", step.reason, due)
		}
		token, err := a.token(t.Context(), "one")
		if token != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%s: got %q (%v), want %q", step.reason, token, err, step.want)
		}
		if err == nil && a.isDue("one") {
			t.Errorf("%s: the new one is due", step.reason)
		}
	}
}
