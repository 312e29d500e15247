// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway/resolve"
)

// FuzzClassify: whatever a client asks for, it is counted as something that there is a limit of, and costs something.
func FuzzClassify(f *testing.F) {
	for _, seed := range [][2]string{
		{"GET", "/api/v1/pods?watch=true&fieldSelector=metadata.name%3Dx"}, {"POST", "/api/v1/namespaces/a/pods/b/exec?command=c"},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments"}, {"GET", "/api/v1/namespaces/a/pods/b:80/proxy/x/%2F"}, {"BREW", "//"},
	} {
		f.Add(seed[0], seed[1])
	}
	c := newClassifier()
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		k := c.classify(&http.Request{Method: method, URL: u, Header: http.Header{}})
		switch k.quantity {
		case bounds.RequestsReading, bounds.RequestsWriting, bounds.RequestsLongRunning:
		default:
			t.Errorf("it counts as %s", k.quantity)
		}
		if k.lease <= 0 || k.cost <= 0 {
			t.Errorf("it costs nothing: %+v", k)
		}
	})
}

// FuzzRoute: a path leads to the space that it names, or nowhere, and a redirect stays in the space.
func FuzzRoute(f *testing.F) {
	f.Add("/spaces/a/api/../..", "/api")
	f.Add("/spaces/%61/x", "//host/x")
	f.Add("/api/v1/tenants/a/namespaces/n/pods/p/proxy", "/api/v1/namespaces/n/pods/p/proxy/?x=1")
	f.Add("/apis/apps/v1/tenants/a/deployments", "/version#x")
	f.Add("/api/v1/tenants/a/namespaces/n/pods/p/proxy", "/api/ v1/x")
	f.Fuzz(func(t *testing.T, target, to string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		var asked string
		g := &Router{TenantOf: func(space string) string { return space }, Lookup: func(space string) http.Handler {
			asked = space
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(http.StatusFound)
			})
		}}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
		if asked == "" || w.Code != http.StatusFound {
			return
		}
		full := strings.Contains(u.EscapedPath(), "/tenants/"+asked+"/")
		if strings.Contains(asked, "/") || !full && !strings.HasPrefix(u.EscapedPath(), Path(asked)) {
			t.Errorf("%q leads to space %q", target, asked)
		}
		location, err := url.Parse(w.Header().Get("Location"))
		if err != nil || !isPath(to) || strings.Contains(target+to, "/.") || strings.Contains(to, "%2e") || strings.ContainsAny(to, `\`) {
			return // the space sends its client elsewhere
		}
		if path := u.ResolveReference(location).EscapedPath(); full {
			if there, err := resolve.Resolve(path, "", ""); err != nil || there.Space != asked {
				t.Errorf("from %q, %q leads to %q", target, to, path)
			}
		}
	})
}
