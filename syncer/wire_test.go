// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// The two APIs that a syncer talks to.
const (
	toHost  = "host"
	toSpace = "space"
)

var errCut = errors.New("the process is dead")

// wire lies between one run of a syncer and its APIs, as an
// [http.RoundTripper] around the real ones: faults are injected here only.
type wire struct {
	rule atomic.Pointer[rule]
	cut  atomic.Bool // nothing passes any more
}

// rule decides what becomes of a request; send sends it.
type rule func(c call, send func() (*http.Response, error)) (*http.Response, error)

// call is a request on its way.
type call struct {
	to string
	*http.Request
}

// obey makes r the wire's rule, nil for none.
func (w *wire) obey(r rule) { w.rule.Store(&r) }

func (w *wire) config(to string, c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return tap{w, to, next} })
	return c
}

type tap struct {
	wire *wire
	to   string
	next http.RoundTripper
}

func (t tap) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.wire.cut.Load() {
		return nil, errCut
	}
	r := t.wire.rule.Load()
	if r == nil || *r == nil {
		return t.next.RoundTrip(req)
	}
	return (*r)(call{t.to, req}, func() (*http.Response, error) {
		if t.wire.cut.Load() {
			return nil, errCut
		}
		resp, err := t.next.RoundTrip(req)
		if err == nil && t.wire.cut.Load() { // it was sent, and its answer finds nobody
			_ = resp.Body.Close()
			return nil, errCut
		}
		return resp, err
	})
}

// writes reports whether a call changes something that matters: events don't,
// and there is any number of them.
func (c call) writes() bool {
	return slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, c.Method) &&
		!strings.HasSuffix(c.URL.Path, "/events") && !strings.Contains(c.URL.Path, "/events/")
}

func (c call) watches() bool { return c.URL.Query().Get("watch") != "" }

func (c call) String() string { return c.to + " " + c.Method + " " + c.URL.Path }
