// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostproxy_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/platform/hostproxy"
)

// wire is what arrives at the address of a host. It is no API server: e2e has one.
type wire struct {
	*httptest.Server
	requests atomic.Int32
	last     atomic.Pointer[http.Request]
	ended    chan struct{} // gets a value when a request that lasts ends
}

func listen(t *testing.T) *wire {
	t.Helper()
	w := &wire{ended: make(chan struct{}, 1)}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		w.last.Store(r)
		switch {
		case strings.HasSuffix(r.URL.Path, "/exec"):
			conn, stream, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			for {
				line, err := stream.ReadString('\n')
				if err != nil {
					w.ended <- struct{}{}
					return
				}
				_, _ = io.WriteString(conn, "echo "+line)
			}
		case r.URL.Query().Get("watch") != "":
			_, _ = io.WriteString(rw, "event\n")
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			w.ended <- struct{}{}
		case r.URL.Query().Get("fail") == "401":
			rw.WriteHeader(http.StatusUnauthorized)
		case r.URL.Query().Get("fail") == "403":
			rw.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(rw, "no, says a pod behind a proxy")
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// config is how Berth reaches the host, with a path before that of the API.
func (w *wire) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return &rest.Config{Host: w.URL + "/clusters/one", BearerToken: "of-berth", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// serve serves the host to a client with an identity, which ends when end is called.
func serve(t *testing.T, config *rest.Config, who *identity.Identity) (url string, end context.CancelFunc) {
	t.Helper()
	handler, err := hostproxy.New(config, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	known, end := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(known, cancel)()
		if who != nil {
			ctx = identity.With(ctx, who)
		}
		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	t.Cleanup(end)
	return s.URL, end
}

func get(t *testing.T, url string, header http.Header) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func operator() *identity.Identity {
	return &identity.Identity{Name: "olga", UID: "7", Groups: []string{"operators", "crew"}, Extra: map[string][]string{"a": {"b"}}, Tenant: "system"}
}

// Z3, U3: whatever a client sends, the host gets the identity that the gateway has proved, and Berth's own credential.
func TestHostileHeadersClaimNothing(t *testing.T) {
	host := listen(t)
	url, _ := serve(t, host.config(), operator())
	for _, hop := range []string{"", "close", "Impersonate-User, Impersonate-Group, Authorization", "upgrade"} {
		for _, path := range []string{"/api/v1/pods?limit=5&x=%2F", "/api/v1/namespaces/n/pods/p/exec"} {
			header := http.Header{
				"Authorization": {"Bearer of-olga"}, "X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"},
				"X-Remote-Extra-A": {"b"}, "Cookie": {"session=of-olga"}, "X-Forwarded-For": {"192.0.2.1"}, "Proxy-Authorization": {"Bearer x"}, "Connection": {hop},
			}
			if strings.HasSuffix(path, "/exec") {
				if hop == "" || hop == "close" {
					continue
				}
				header.Set("Connection", "Upgrade, "+hop)
				header.Set("Upgrade", "websocket")
				closeUpgraded(t, url, path, header)
			} else if code, body := get(t, url+path, header); code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
			r := host.last.Load()
			if want := "/clusters/one" + path; r.URL.RequestURI() != want {
				t.Errorf("the host gets %s, want %s", r.URL.RequestURI(), want)
			}
			claims := http.Header{}
			for name, values := range r.Header {
				for _, prefix := range []string{"impersonate", "x-remote", "authorization", "cookie", "proxy-", "x-forwarded-for"} {
					if strings.HasPrefix(strings.ToLower(name), prefix) {
						claims[name] = values
					}
				}
			}
			want := http.Header{
				"Authorization": {"Bearer of-berth"}, "Impersonate-User": {"olga"}, "Impersonate-Group": {"operators", "crew"}, "X-Forwarded-For": {"127.0.0.1"},
			}
			if diff := cmp.Diff(want, claims); diff != "" {
				t.Errorf("with Connection: %s, to %s: %s", hop, path, diff)
			}
			// A proxy before the API server would remove what Connection names.
			if got := r.Header.Get("Connection"); got != "" && !strings.EqualFold(got, "upgrade") {
				t.Errorf("the host gets Connection: %s", got)
			}
		}
	}
}

// What a client wants to do as somebody else isn't done as itself.
func TestClientsImpersonateNobodyOnTheHost(t *testing.T) {
	host := listen(t)
	url, _ := serve(t, host.config(), operator())
	for _, name := range []string{"Impersonate-User", "impersonate-user", "Impersonate-Uid", "Impersonate-Group", "Impersonate-Extra-Scopes"} {
		if code, body := get(t, url+"/api", http.Header{name: {"viewer"}}); code != http.StatusForbidden || !strings.Contains(body, "can't impersonate others") {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if n := host.requests.Load(); n != 0 {
		t.Errorf("the host got %d requests", n)
	}
}

// Z2, Z4: the host is for users of the tenant system, under names that it can't take for others, or for Berth.
func TestHostileIdentitiesDoNotReachTheHost(t *testing.T) {
	host := listen(t)
	as := host.config()
	as.Impersonate.UserName = "viewer"
	with := func(change func(*identity.Identity)) *identity.Identity {
		who := operator()
		change(who)
		return who
	}
	for reason, test := range map[string]struct {
		config *rest.Config
		who    *identity.Identity
		path   string
		code   int
	}{
		"nobody":                          {host.config(), nil, "/api", http.StatusUnauthorized},
		"a user of a tenant":              {host.config(), with(func(i *identity.Identity) { i.Tenant = "solar" }), "/api", http.StatusForbidden},
		"a ServiceAccount of the host":    {host.config(), with(func(i *identity.Identity) { i.Tenant = "" }), "/api", http.StatusForbidden},
		"a visitor":                       {host.config(), operator().AsVisitor(), "/api", http.StatusForbidden},
		"no name would be Berth":          {host.config(), &identity.Identity{Tenant: "system"}, "/api", http.StatusForbidden},
		"spaces are no name in a header":  {host.config(), &identity.Identity{Name: " \t", Tenant: "system"}, "/api", http.StatusForbidden},
		"a name that is another's":        {host.config(), with(func(i *identity.Identity) { i.Name = "admin " }), "/api", http.StatusForbidden},
		"a second header":                 {host.config(), with(func(i *identity.Identity) { i.Name = "a\r\nImpersonate-Group: b" }), "/api", http.StatusForbidden},
		"a group that is another":         {host.config(), with(func(i *identity.Identity) { i.Groups = []string{" system:masters"} }), "/api", http.StatusForbidden},
		"the account of a space":          {host.config(), with(func(i *identity.Identity) { i.Name = "system:serviceaccount:berth-solar:berth-syncer" }), "/api", http.StatusForbidden},
		"Berth acts as somebody":          {as, operator(), "/api", http.StatusForbidden},
		"another cluster behind a proxy":  {host.config(), operator(), "/api/../../two/api", http.StatusBadRequest},
		"another cluster, with an escape": {host.config(), operator(), "/%2e%2e/two/api", http.StatusBadRequest},
		"another cluster, with slashes":   {host.config(), operator(), "/..%2Ftwo/api", http.StatusBadRequest},
	} {
		url, _ := serve(t, test.config, test.who)
		if code, body := get(t, url+test.path, nil); code != test.code {
			t.Errorf("%s: %d %s, want %d", reason, code, body, test.code)
		}
	}
	if n := host.requests.Load(); n != 0 {
		t.Errorf("the host got %d requests", n)
	}
}

// U1: watches and upgrades work, and end when the client is no longer known.
func TestRequestsToTheHostEndWithTheIdentity(t *testing.T) {
	host := listen(t)
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/namespaces/n/pods/p/exec"} {
		url, end := serve(t, host.config(), operator())
		upgrade := strings.HasSuffix(path, "exec")
		header := "Connection: close\r\n" // a watch may end in order, which leaves other connections open
		if upgrade {
			header = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
		}
		conn, read := open(t, url, path, header)
		defer func() { _ = conn.Close() }()
		await := func(want string) {
			for line := ""; line != want; {
				var err error
				if line, err = read.ReadString('\n'); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
			}
		}
		await("\r\n") // the end of the headers
		if upgrade {
			_, _ = io.WriteString(conn, "hello\n")
			await("echo hello\n")
		} else {
			await("event\n")
		}
		end()
		if _, err := io.Copy(io.Discard, read); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the client's connection stays open: %v", path, err)
		}
		select {
		case <-host.ended:
		case <-time.After(time.Minute):
			t.Errorf("%s goes on at the host", path)
		}
	}
}

// open sends a request by a connection of its own.
func open(t *testing.T, url, path, header string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: berth\r\n"+header+"\r\n")
	return conn, bufio.NewReader(conn)
}

func closeUpgraded(t *testing.T, url, path string, header http.Header) {
	t.Helper()
	var text strings.Builder
	_ = header.Write(&text)
	conn, read := open(t, url, path, text.String())
	defer func() { _ = conn.Close() }()
	if line, err := read.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("no upgrade: %s (%v)", line, err)
	}
}

// A refusal of Berth's own credential is no reason for a client to log in again; other refusals are the host's.
func TestRefusalsOfBerthAreNotTheClients(t *testing.T) {
	host := listen(t)
	url, _ := serve(t, host.config(), operator())
	if code, body := get(t, url+"/api?fail=401", nil); code != http.StatusServiceUnavailable || !strings.Contains(body, "try again later") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(t, url+"/api?fail=403", nil); code != http.StatusForbidden || body != "no, says a pod behind a proxy" {
		t.Errorf("%d %s", code, body)
	}
}
