// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/gateway/resolve"
)

// FuzzResolve: U1, U3: whatever the path, it leads to the space that it names, or else to the client's own. The space gets the
// bytes of the path without the tenant, understands them as the same request, and finds no other tenant in them.
func FuzzResolve(f *testing.F) {
	for _, target := range []string{
		"/api/v1/tenants/a/namespaces/n/pods/p/exec?command=x", "/apis/apps/v1/tenants/a/watch/deployments?watch=1", "/api/v1/tenants/a/tenants/b/pods",
		"/api/v1/tenants/a%2Fb/pods", "/api/v1/%74enants/a/pods", "//api/v1/tenants/a/pods", "/api/v1/tenants//pods", "/api/v1/tenants/A/pods",
		"/api/v1/tenants/a/../../tenants/b/pods", "/api/v1/tenants/a/%2e%2e/%2e%2e/x", "/api/v1/tenants/a%3F/pods?x=/api/v1/tenants/b/pods",
		"/apis/berth.dev/v1alpha1/tenants/a/status", "/api/v1/watch/tenants/a/pods", "/spaces/a/api/v1/tenants/b/pods", "/spaces/%61/x",
		"/healthz", "/version", "/openapi/v3", "/apis", "/apis/tenants/v1/tenants/v1/x", "/api/v1/proxy/tenants/a/x", "/", "*", "/api//tenants/a/pods",
	} {
		f.Add(target, http.MethodGet, "own")
	}
	f.Fuzz(func(t *testing.T, target, method, own string) { checkResolved(t, target, method, own) })
}

// U1, U3: the same for paths that are made of all that matters.
func TestHostilePathsLeadNowhereElse(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"", "api", "apis", "v1", "apps", "tenants", "%74enants", "a", "b", "A", "watch", "proxy", "status", "scale", "namespaces", "pods", "exec", "spaces", "..", "%2e%2e", "a%2Fb", "%2F", "tenants%2Fa",
	})
	start := rapid.SampledFrom([]string{"", "/api/v1", "/apis/apps/v1", "/api/v1/tenants/a", "/apis/apps/v1/tenants/a", "/apis/apps/v1/watch/tenants", "/spaces/a", "/spaces"})
	rapid.Check(t, func(t *rapid.T) {
		path := start.Draw(t, "start") + "/" + strings.Join(rapid.SliceOfN(part, 0, 7).Draw(t, "path"), "/")
		checkResolved(t, path+rapid.SampledFrom([]string{"", "?", "?watch=1", "?x=/tenants/b/"}).Draw(t, "query"),
			rapid.SampledFrom([]string{http.MethodGet, http.MethodPost, http.MethodDelete}).Draw(t, "method"), rapid.SampledFrom([]string{"", "own", resolve.System}).Draw(t, "own"))
	})
}

// testT is a [testing.T] or a [rapid.T].
type testT interface {
	Helper()
	Fatalf(format string, args ...any)
}

func checkResolved(t testT, target, method, own string) {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Host != "" {
		return
	}
	path := u.EscapedPath()
	got, err := resolve.Resolve(path, own, "d")
	if err != nil {
		return
	}
	switch rest, named := strings.CutPrefix(path, resolve.Prefix); {
	case named:
		if got.Tenant != "" || strings.TrimSuffix(rest, "/") != strings.TrimSuffix(got.Space+got.Path, "/") {
			t.Fatalf("%q leads to %+v", path, got)
		}
	case got.Tenant == "":
		if got.Space != cmp.Or(own, "d") || got.Path != path {
			t.Fatalf("%q of %q leads to %+v", path, own, got)
		}
	default:
		checkFull(t, u, method, got)
	}
	checkStable(t, path, got)
}

// checkFull fails unless a full path leads to its tenant, with a path that an API server understands as the request without it.
func checkFull(t testT, u *url.URL, method string, got resolve.Target) {
	t.Helper()
	if got.Space != got.Tenant {
		t.Fatalf("%q leads to %+v", u, got)
	}
	if full, ok := resolve.Full(got.Tenant, got.Path); !ok || full != u.EscapedPath() {
		t.Fatalf("the full path of %+v is %q, %t, want %q", got, full, ok, u.EscapedPath())
	}
	// The reference: the segments of the decoded path, without two of them.
	parts := strings.Split(u.Path, "/")
	i := slices.Index([]string{"api", "apis"}, parts[1]) + 3
	if parts[i] != "tenants" || parts[i+1] != got.Tenant {
		t.Fatalf("%q leads to %+v", u, got)
	}
	if got, want := infoOf(t, method, u, pathOf(t, got)), infoOf(t, method, u, strings.Join(slices.Delete(parts, i, i+2), "/")); !gocmp.Equal(want, got) {
		t.Fatalf("%q: %s", u, gocmp.Diff(want, got))
	}
}

func pathOf(t testT, target resolve.Target) string {
	t.Helper()
	path, err := url.PathUnescape(target.Path)
	if err != nil {
		t.Fatalf("%s: %v", target.Path, err)
	}
	return path
}

func infoOf(t testT, method string, u *url.URL, path string) *request.RequestInfo {
	t.Helper()
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: &url.URL{Path: path, RawQuery: u.RawQuery}})
	if err != nil {
		return nil
	}
	return info
}

// checkStable fails unless what is resolved resolves to itself.
func checkStable(t testT, path string, got resolve.Target) {
	t.Helper()
	if strings.Contains(got.Space, "/") || !strings.HasPrefix(got.Path, "/") { // no name of a space, and no path, such as *
		return
	}
	want := resolve.Target{Space: got.Space, Path: got.Path}
	if again, err := resolve.Resolve(resolve.Prefix+got.Space+got.Path, "", ""); err != nil || again != want {
		t.Fatalf("%q leads to %+v, and that to %+v (%v)", path, got, again, err)
	}
	if strings.HasPrefix(path, resolve.Prefix) { // the space has the last word about its paths
		return
	}
	if again, err := resolve.Resolve(got.Path, got.Space, ""); err != nil || again != want {
		t.Fatalf("%q leads to %+v, and its path to %+v (%v)", path, got, again, err)
	}
}
