// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/gateway/resolve"
)

// at is the target of a path that names no tenant, and of is that of one that names one.
func at(space, path string) resolve.Target { return resolve.Target{Space: space, Path: path} }

func of(tenant, path string) resolve.Target {
	return resolve.Target{Space: tenant, Tenant: tenant, Path: path}
}

// U3: each row of RM's algorithm. Resolving authorizes nothing: a client gets another tenant's space, and that refuses it.
func TestResolutionFollowsTheAlgorithm(t *testing.T) {
	const short, full = "/api/v1/namespaces/ns-1/pods/pod1", "/api/v1/tenants/t2/namespaces/ns-1/pods/pod1"
	for name, c := range map[string]struct {
		path, own, byDefault string
		want                 resolve.Target
		code                 int
	}{
		"no tenant, a default tenant":               {path: short, byDefault: "d", want: at("d", short)},
		"no tenant, a default tenant, a full path":  {path: full, byDefault: "d", want: of("t2", short)},
		"no tenant, no default tenant":              {path: short, code: http.StatusNotFound}, // not the system space
		"no tenant, no default tenant, a full path": {path: full, want: of("t2", short)},
		"a tenant":                                     {path: short, own: "t1", want: at("t1", short)},
		"a tenant, a default tenant":                   {path: short, own: "t1", byDefault: "d", want: at("t1", short)},
		"a tenant, a full path of its own":             {path: full, own: "t2", want: of("t2", short)},
		"a tenant, a full path of another":             {path: full, own: "t1", byDefault: "d", want: of("t2", short)},
		"a tenant, a full path of the system":          {path: "/api/v1/tenants/system/nodes", own: "t1", want: of("system", "/api/v1/nodes")},
		"a system user":                                {path: short, own: "system", want: at("system", short)},
		"a system user, a default tenant":              {path: short, own: "system", byDefault: "d", want: at("system", short)},
		"a system user, a full path":                   {path: full, own: "system", want: of("t2", short)},
		"a system user, a full path of the system":     {path: "/api/v1/tenants/system/persistentvolumes/pv1", own: "system", want: of("system", "/api/v1/persistentvolumes/pv1")},
		"a system user, the default tenant is system":  {path: short, own: "system", byDefault: "system", want: at("system", short)},
		"a tenant, the default tenant is system":       {path: short, own: "t1", byDefault: "system", want: at("t1", short)},
		"no tenant, the default tenant is system":      {path: short, byDefault: "system", want: at("system", short)},
		"a tenant, the path of a space":                {path: "/spaces/s" + short, own: "t1", byDefault: "d", want: at("s", short)},
		"a tenant, the path of a space in a full path": {path: "/spaces/s" + full, own: "t1", want: at("s", full)}, // the space has the last word
	} {
		t.Run(name, func(t *testing.T) { check(t, c.path, c.own, c.byDefault, c.want, c.code) })
	}
}

// U1: the examples of RM and AK, and all forms of paths.
func TestFullPathsLeadIntoTheTenantsSpace(t *testing.T) {
	for path, want := range map[string]resolve.Target{
		"/api/v1/tenants/t1/namespaces/default/pods/pod1":                 of("t1", "/api/v1/namespaces/default/pods/pod1"),
		"/api/v1/tenants/t1/persistentvolumes/pv1":                        of("t1", "/api/v1/persistentvolumes/pv1"),
		"/api/v1/tenants/system/namespaces/default/pods/pod1":             of("system", "/api/v1/namespaces/default/pods/pod1"),
		"/api/v1/tenants/system/persistentvolumes/pv1":                    of("system", "/api/v1/persistentvolumes/pv1"),
		"/api/v1/clusteroles/cls1":                                        at("own", "/api/v1/clusteroles/cls1"),
		"/api/v1/tenants/xxx":                                             at("own", "/api/v1/tenants/xxx"), // the Tenant object
		"/apis/apps/v1/tenants/t1/deployments":                            of("t1", "/apis/apps/v1/deployments"),
		"/apis/apps/v1/tenants/t1/namespaces/default/deployments/web":     of("t1", "/apis/apps/v1/namespaces/default/deployments/web"),
		"/apis/rbac.authorization.k8s.io/v1/tenants/t1/clusterroles":      of("t1", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
		"/api/v1/tenants/t1/namespaces/default/pods/p/exec":               of("t1", "/api/v1/namespaces/default/pods/p/exec"),
		"/api/v1/tenants/t1/namespaces/default/pods/p:80/proxy/a%2Fb//c/": of("t1", "/api/v1/namespaces/default/pods/p:80/proxy/a%2Fb//c/"),
		"/api/v1/tenants/t1/namespaces/t1/status":                         of("t1", "/api/v1/namespaces/t1/status"),
		"/api/v1/tenants/t1/watch/pods":                                   of("t1", "/api/v1/watch/pods"),
		"/api/v1/tenants/t1/pods/":                                        of("t1", "/api/v1/pods/"),
		"/api/v1/tenants/t1/%2e%2e/x":                                     of("t1", "/api/v1/%2e%2e/x"),
		"/apis/berth.dev/v1alpha1/tenants/system/tenants":                 of("system", "/apis/berth.dev/v1alpha1/tenants"),
		"/apis/berth.dev/v1alpha1/tenants/system/tenants/acme":            of("system", "/apis/berth.dev/v1alpha1/tenants/acme"),
		"/apis/berth.dev/v1alpha1/tenants/system/tenants/acme/status":     of("system", "/apis/berth.dev/v1alpha1/tenants/acme/status"),
		"/apis/example.com/v1/tenants/t1/namespaces/n/tenants/a/status":   of("t1", "/apis/example.com/v1/namespaces/n/tenants/a/status"),
		"/apis/tenants/v1/tenants/v1/x":                                   of("v1", "/apis/tenants/v1/x"),
		"/apis/berth.dev/v1alpha1/tenants":                                at("own", "/apis/berth.dev/v1alpha1/tenants"),
		"/apis/berth.dev/v1alpha1/tenants/acme":                           at("own", "/apis/berth.dev/v1alpha1/tenants/acme"),
		"/apis/berth.dev/v1alpha1/tenants/acme/":                          at("own", "/apis/berth.dev/v1alpha1/tenants/acme/"),
		"/apis/berth.dev/v1alpha1/tenants/acme/status":                    at("own", "/apis/berth.dev/v1alpha1/tenants/acme/status"),
		"/apis/example.com/v1/tenants/A.b/scale":                          at("own", "/apis/example.com/v1/tenants/A.b/scale"),
		"/apis/example.com/v1/watch/tenants/a":                            at("own", "/apis/example.com/v1/watch/tenants/a"),
		"/apis/example.com/v1/namespaces/n/tenants/a/status":              at("own", "/apis/example.com/v1/namespaces/n/tenants/a/status"),
		"/api/v1/namespaces/tenants/pods":                                 at("own", "/api/v1/namespaces/tenants/pods"),
		"/api/v1/namespaces/n/services/s/proxy/api/v1/tenants/t/pods":     at("own", "/api/v1/namespaces/n/services/s/proxy/api/v1/tenants/t/pods"),
		"/api/tenants/t1/pods":                                            at("own", "/api/tenants/t1/pods"),
		"/apis/apps/tenants/t1/deployments":                               at("own", "/apis/apps/tenants/t1/deployments"),
		"/tenants/t1/api/v1/pods":                                         at("own", "/tenants/t1/api/v1/pods"),
		"/openapi/v3/api/v1/tenants/t1/pods":                              at("own", "/openapi/v3/api/v1/tenants/t1/pods"),
		"/healthz":                                                        at("own", "/healthz"),
		"/version":                                                        at("own", "/version"),
		"/apis":                                                           at("own", "/apis"),
		"/":                                                               at("own", "/"),
		"":                                                                at("own", ""),
		"*":                                                               at("own", "*"),
		"/spaces":                                                         at("own", "/spaces"),
		"/spaces/a":                                                       at("a", "/"),
		"/spaces/a/":                                                      at("a", "/"),
		"/spaces/a//b/../%2F":                                             at("a", "//b/../%2F"),
		"/spaces/A/x":                                                     at("A", "/x"), // is refused as unknown
	} {
		t.Run(path, func(t *testing.T) { check(t, path, "own", "", want, 0) })
	}
}

// U1: what could be taken for another path is refused, with what is wrong and what to write.
func TestHostilePathsAreRefused(t *testing.T) {
	for path, says := range map[string]string{
		"/api/v1/tenants//pods":                                  `the tenant ""`,
		"/api/v1/tenants/A/pods":                                 `the tenant "A"`,
		"/api/v1/tenants/../pods":                                `the tenant ".."`,
		"/api/v1/tenants/a%00/pods":                              `the tenant "a\x00"`,
		"/api/v1/tenants/a%3Fx/pods":                             `the tenant "a?x"`,
		"/api/v1/tenants/" + strings.Repeat("a", 64) + "/pods":   "63",
		"/api/v1/tenants/а/pods":                                 "lower case", // a Cyrillic letter
		"/api/v1/tenants/a%2Fpods/x":                             "without escapes",
		"/api/v1/tenants/%61/pods":                               "without escapes",
		"/api/v1/%74enants/a/pods":                               "without escapes",
		"/api/v1%2Ftenants/a/pods":                               "without escapes",
		"/%61pi/v1/tenants/a/pods":                               "without escapes",
		"/apis/ex%61mple/v1/tenants/a/pods":                      "without escapes",
		"//api/v1/tenants/a/pods":                                "additional slashes",
		"/%2Fapi/v1/tenants/a/pods":                              "without escapes",
		"/api/v1/tenants/a//pods":                                "no resource",
		"/api/v1/tenants/a/tenants/b/pods":                       "another one",
		"/api/v1/tenants/a/%74enants/b/pods":                     "another one",
		"/api/v1/tenants/a/watch/tenants/b/pods":                 "another one",
		"/api/v1/tenants/a/tenants/b/tenants/c/pods":             "another one",
		"/api/v1/watch/tenants/a/pods":                           "write .../tenants/a/watch/",
		"/apis/apps/v1/watch/tenants/a/namespaces/n/deployments": "write .../tenants/a/watch/",
		"/api/v1/proxy/tenants/a/x":                              "write .../tenants/a/proxy/",
		"/api/v1/%zz":                                            "escape",
	} {
		t.Run(path, func(t *testing.T) {
			_, err := resolve.Resolve(path, "own", "")
			var refused *resolve.Error
			if !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want a bad request that says %q", err, says)
			}
		})
	}
	for _, path := range []string{"/spaces/", "/spaces//api/v1/pods"} {
		check(t, path, "own", "d", resolve.Target{}, http.StatusNotFound)
	}
}

// L3: the message of a refusal is short, however long the path is.
func TestHostileLongPathsHaveShortErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for _, path := range []string{
		"/api/v1/tenants/" + long + "/pods", "/apis/" + long + "/" + long + "/tenants/%61/pods", "/%zz" + long, "/api/v1/tenants/a/" + strings.Repeat("tenants/a/", 1<<12),
	} {
		if _, err := resolve.Resolve(path, "own", ""); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.40s: %.600v", path, err)
		}
	}
}

func TestPathsOfNoResourceHaveNoFullPath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":              "/api/v1/tenants/t/pods",
		"/apis/apps/v1/deployments": "/apis/apps/v1/tenants/t/deployments",
		"/api/v1/a%2Fb/c":           "/api/v1/tenants/t/a%2Fb/c",
		"":                          "",
		"/":                         "",
		"/version":                  "",
		"/apis/apps/v1":             "",
		"/api/v1/":                  "",
		"api/v1/pods":               "",
		"/api/v1/status":            "", // would be the status of the Tenant object
		"/spaces/a/api/v1/pods":     "",
	} {
		if got, ok := resolve.Full("t", path); got != want && ok || ok != (want != "") {
			t.Errorf("%s: got %q, %t, want %q", path, got, ok, want)
		}
	}
}

// check fails unless a path resolves to want, or, if code is not zero, to that error.
func check(t *testing.T, path, own, byDefault string, want resolve.Target, code int) {
	t.Helper()
	got, err := resolve.Resolve(path, own, byDefault)
	var refused *resolve.Error
	if errors.As(err, &refused); code != 0 && (refused == nil || refused.Code != code) || code == 0 && err != nil {
		t.Fatalf("%s: the error is %v, want %d", path, err, code)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}
