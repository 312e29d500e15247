// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/gateway/tenantfields"
)

const object = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n"}}`

// serve serves all paths as the gateway does, with a handler in place of the space.
func serve(t *testing.T, space http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := resolve.Resolve(r.URL.EscapedPath(), "solar", "")
		if err != nil {
			t.Error(err)
			return
		}
		r.URL.Path, _ = url.PathUnescape(target.Path)
		tenantfields.Wrap(target, space).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// respond returns a handler that responds with a document.
func respond(code int, contentType, document string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, document)
	}
}

func do(t *testing.T, method, url, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return resp.StatusCode, string(got)
}

// U5: selfLink is the full path at which the object is read, whatever the request was.
func TestSelfLinksAreFullPaths(t *testing.T) {
	s := serve(t, respond(http.StatusOK, "application/json", object))
	for _, c := range []struct{ method, path, link string }{
		{"GET", "/api/v1/tenants/solar/namespaces/n/pods/p", "/api/v1/tenants/solar/namespaces/n/pods/p"},
		{"GET", "/api/v1/tenants/solar/namespaces/n/pods/p/?pretty=false", "/api/v1/tenants/solar/namespaces/n/pods/p"},
		{"PUT", "/api/v1/tenants/solar/namespaces/n/pods/p/status", "/api/v1/tenants/solar/namespaces/n/pods/p/status"},
		{"PATCH", "/apis/apps/v1/tenants/solar/namespaces/n/deployments/p/scale", "/apis/apps/v1/tenants/solar/namespaces/n/deployments/p/scale"},
		{"POST", "/api/v1/tenants/solar/namespaces/n/pods", "/api/v1/tenants/solar/namespaces/n/pods/p"},
		{"POST", "/api/v1/tenants/solar/pods", "/api/v1/tenants/solar/namespaces/n/pods/p"},
		{"DELETE", "/api/v1/tenants/solar/namespaces/n/pods/p", "/api/v1/tenants/solar/namespaces/n/pods/p"},
		{"GET", "/api/v1/tenants/solar/namespaces/n", "/api/v1/tenants/solar/namespaces/n"},
		{"GET", "/api/v1/tenants/solar/namespaces/n/status", "/api/v1/tenants/solar/namespaces/n/status"},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/tenants/solar/clusterroles/system:a%20b", "/apis/rbac.authorization.k8s.io/v1/tenants/solar/clusterroles/system:a%20b"},
	} {
		code, got := do(t, c.method, s.URL+c.path, "", "")
		if want := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","tenant":"solar","selfLink":"` + c.link + `"}}`; code != http.StatusOK || got != want {
			t.Errorf("%s %s: got %d %s, want %s", c.method, c.path, code, got, want)
		}
	}
	s = serve(t, respond(http.StatusOK, "application/json", `{"type":"ADDED","object":`+object+"}\n"))
	for path, link := range map[string]string{
		"/api/v1/tenants/solar/pods?watch=1":                     "/api/v1/tenants/solar/namespaces/n/pods/p",
		"/api/v1/tenants/solar/namespaces/n/pods?watch=true":     "/api/v1/tenants/solar/namespaces/n/pods/p",
		"/api/v1/tenants/solar/watch/pods":                       "/api/v1/tenants/solar/namespaces/n/pods/p",
		"/api/v1/tenants/solar/watch/namespaces/n/pods/p":        "/api/v1/tenants/solar/namespaces/n/pods/p",
		"/api/v1/tenants/solar/watch/namespaces/n/services":      "/api/v1/tenants/solar/namespaces/n/services/p",
		"/apis/a.b/v1/tenants/solar/namespaces/n/things?watch=1": "/apis/a.b/v1/tenants/solar/namespaces/n/things/p",
	} {
		if _, got := do(t, http.MethodGet, s.URL+path, "", ""); !strings.Contains(got, `"tenant":"solar","selfLink":"`+link+`"}}}`) {
			t.Errorf("%s: got %s, want the link %s", path, got, link)
		}
	}
}

// U5: short paths, other documents, errors, and what pods respond with stay as they are.
func TestOtherResponsesAreUnchanged(t *testing.T) {
	list := `{"kind":"PodList","metadata":{},"items":[` + object + `]}`
	for name, c := range map[string]struct {
		path, contentType, document string
		code                        int
	}{
		"a short path":        {"/api/v1/namespaces/n/pods", "application/json", list, 200},
		"the path of a space": {"/spaces/solar/api/v1/namespaces/n/pods", "application/json", list, 200},
		"a Tenant object":     {"/apis/berth.dev/v1alpha1/tenants/solar", "application/json", object, 200},
		"an error":            {"/api/v1/tenants/solar/namespaces/n/pods/p", "application/json", `{"kind":"X","metadata":{}}`, 404},
		"YAML":                {"/api/v1/tenants/solar/namespaces/n/pods/p", "application/yaml", object, 200},
		"protobuf":            {"/api/v1/tenants/solar/namespaces/n/pods/p", "application/vnd.kubernetes.protobuf", "k8s\x00" + object, 200},
		"CBOR":                {"/api/v1/tenants/solar/namespaces/n/pods/p", "application/cbor", object, 200},
		"a log":               {"/api/v1/tenants/solar/namespaces/n/pods/p/log", "application/json", object, 200},
		"a proxied pod":       {"/api/v1/tenants/solar/namespaces/n/pods/p/proxy/x", "application/json", object, 200},
		"a proxied service":   {"/api/v1/tenants/solar/namespaces/n/services/p:80/proxy", "application/json", object, 200},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = string(body)
				respond(c.code, c.contentType, c.document)(w, r)
			})
			const sent = `{"metadata":{"tenant":"lunar"}}`
			if code, document := do(t, http.MethodGet, s.URL+c.path, "", ""); code != c.code || document != c.document {
				t.Errorf("got %d %s", code, document)
			}
			if strings.Contains(c.path, "tenants/solar/") && c.code == 200 && !strings.Contains(c.path, "/proxy") {
				return
			}
			if do(t, http.MethodPut, s.URL+c.path, "application/json", sent); got != sent && c.code == 200 {
				t.Errorf("the space gets %q", got)
			}
		})
	}
}

// U5: the API server gets the document without the field, with the length that the client has sent; or nothing, and then the
// client gets 400, whatever the API server responds.
func TestWritesNameTheTenantOfTheURL(t *testing.T) {
	var arrived atomic.Value
	space := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			respond(http.StatusInternalServerError, "text/plain", "half a body")(w, r)
			return
		}
		arrived.Store(string(body))
		if r.ContentLength >= 0 && int64(len(body)) != r.ContentLength {
			t.Errorf("%d bytes arrive, of %d", len(body), r.ContentLength)
		}
		respond(http.StatusCreated, "application/json", object)(w, r)
	}
	process := httptest.NewServer(http.HandlerFunc(space))
	t.Cleanup(process.Close)
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { // as shard/dedicated does
		r.Out.URL.Scheme, r.Out.URL.Host = "http", process.Listener.Addr().String()
	}}
	const path = "/api/v1/tenants/solar/namespaces/n/pods"
	for name, s := range map[string]*httptest.Server{"shared": serve(t, space), "dedicated": serve(t, proxy.ServeHTTP)} {
		for _, contentType := range []string{"", "application/json", "application/json; charset=utf-8", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"} {
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				arrived.Store("nothing")
				if code, got := do(t, method, s.URL+path, contentType, `{"metadata":{"name":"p","tenant":"solar"}}`); code != http.StatusCreated {
					t.Errorf("%s, %s, %q: got %d %s", name, method, contentType, code, got)
				}
				if got := strings.Join(strings.Fields(arrived.Load().(string)), ""); got != `{"metadata":{"name":"p"}}` {
					t.Errorf("%s, %s, %q: the space gets %q", name, method, contentType, got)
				}
				arrived.Store("nothing")
				code, got := do(t, method, s.URL+path, contentType, `{"metadata":{"name":"p","tenant":"lunar"}}`)
				checkRefused(t, code, got)
				if got := arrived.Load(); got != "nothing" {
					t.Errorf("%s, %s, %q: the space gets %q", name, method, contentType, got)
				}
			}
		}
		const patch = "application/json-patch+json"
		code, _ := do(t, http.MethodPatch, s.URL+path+"/p", patch, `[{"op":"add","path":"/metadata/tenant","value":"solar"},{"op":"add","path":"/a","value":1}]`)
		if got := arrived.Load(); code != http.StatusCreated || got != `[{"op":"add","path":"/a","value":1}]` {
			t.Errorf("%s: the space gets %q", name, got)
		}
		code, got := do(t, http.MethodPatch, s.URL+path+"/p", patch, `[{"op":"add","path":"/metadata/tenant","value":"lunar"}]`)
		checkRefused(t, code, got)
	}
}

func checkRefused(t *testing.T, code int, document string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(document), &status); err != nil || code != http.StatusBadRequest {
		t.Errorf("got %d %s", code, document)
	}
	const want = `metadata.tenant: Invalid value: "lunar": the URL is for the tenant solar; remove the field, or use a URL of the other tenant`
	if status.Kind != "Status" || status.Code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest || status.Message != want {
		t.Errorf("got %+v", status)
	}
}

// U5: a response is not compressed, so that it can be read here, and has no length, because that changes.
func TestResponsesAreNotCompressed(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "" {
			t.Errorf("the space may compress by %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "72")
		if strings.HasSuffix(r.URL.Path, "compressed") { // by an aggregated API that does so anyway
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Del("Content-Length")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, object)
			_ = z.Close()
			return
		}
		_, _ = io.WriteString(w, object)
	})
	if _, got := do(t, http.MethodGet, s.URL+"/api/v1/tenants/solar/namespaces/n/pods/p", "", ""); !strings.Contains(got, `"tenant":"solar"`) {
		t.Errorf("got %s", got)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/tenants/solar/namespaces/n/pods/compressed", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != object {
		t.Errorf("got %q, %v", got, err)
	}
}

// U5: an event of a watch is sent at once, and the response is never held.
func TestEventsArriveOneByOne(t *testing.T) {
	more := make(chan string)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		for part := range more {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer close(more)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/tenants/solar/namespaces/n/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { more <- `{"type":"ADDED",` }()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if i > 0 {
			more <- `{"type":"ADDED",`
		}
		more <- `"object":` + object + "}\n"
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `/namespaces/n/pods/p"`) {
			t.Fatalf("got %q, %v", line, err)
		}
	}
}

// U1: upgrades keep the connection of the client.
func TestUpgradesHaveTheConnection(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + object)
		_ = rw.Flush()
	})
	for _, path := range []string{"/api/v1/tenants/solar/namespaces/n/pods/p/exec", "/api/v1/tenants/solar/namespaces/n/pods?watch=1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "x")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		_, _ = got.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols || got.String() != object {
			t.Errorf("%s: got %d %s", path, resp.StatusCode, &got)
		}
	}
}
