// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/forward"
	"github.com/berth-dev/berth/vcluster/pki"
)

// shards are two processes: clients reach the one that forwards, and the other one has the space.
type shards struct {
	ca      *pki.CA
	address string // of the other one
	front   *httptest.Server
}

func newShards(t *testing.T, has http.Handler) *shards {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "berth")
	if err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	s := &shards{ca: ca, address: serve(t, ca, "berth-1", has, logger)}
	forwarder := forward.New(ca, func(shard string) (string, error) {
		if shard != "berth-1" {
			return "", errors.New("no such shard")
		}
		return s.address, nil
	}, logger)
	s.front = httptest.NewUnstartedServer(forwarder.To("berth-1"))
	s.front.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.front.StartTLS()
	t.Cleanup(s.front.Close)
	return s
}

func serve(t *testing.T, ca *pki.CA, shard string, handler http.Handler, logger klog.Logger) (address string) {
	t.Helper()
	config, err := forward.ServerTLS(ca, shard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := gateway.ServeTrusted(listener, config, forward.Received(handler, http.NotFoundHandler()), logger)
	t.Cleanup(func() { server.Stop(context.Background()) })
	return listener.Addr().String()
}

// D5: the shard that has the space gets a request as its client sent it, with the client's address and certificate, whatever the client
// says of them.
func TestARequestIsForwardedAsItIs(t *testing.T) {
	type seen struct {
		method, uri, host, body, address, user, token string
		forged                                        []string
	}
	requests := make(chan seen, 1)
	s := newShards(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := seen{method: r.Method, uri: r.URL.RequestURI(), host: r.Host, body: string(body), address: r.RemoteAddr, token: r.Header.Get("Authorization")}
		if len(r.TLS.PeerCertificates) > 0 {
			got.user = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Berth-") {
				got.forged = append(got.forged, name)
			}
		}
		requests <- got
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	}))
	pair, err := s.ca.Client("jane", nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	client := s.front.Client()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{certificate}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/spaces/solar/api%2Fv1?watch=1&a=%20", strings.NewReader("an object"))
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "solar.berth.example.com"
	request.Header.Set("Authorization", "Bearer secret")
	request.Header.Set("X-Berth-Forwarded-Address", "10.0.0.1:80")
	request.Header.Set("X-Berth-Forwarded-Certificate", "forged")
	request.Header.Set("X-Berth-Forwarded-Other", "forged")
	request.Header.Set("Connection", "X-Berth-Forwarded-Hops")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusCreated || string(body) != "made" {
		t.Fatalf("the client got %s %q", response.Status, body)
	}
	got := <-requests
	host, _, err := net.SplitHostPort(got.address)
	if err != nil || host != "127.0.0.1" {
		t.Errorf("the client's address is %q: %v", got.address, err)
	}
	got.address = ""
	if want := (seen{method: "POST", uri: "/spaces/solar/api%2Fv1?watch=1&a=%20", host: "solar.berth.example.com", body: "an object", user: "jane", token: "Bearer secret"}); len(got.forged) > 0 ||
		got.method != want.method || got.uri != want.uri || got.host != want.host || got.body != want.body || got.user != want.user || got.token != want.token {
		t.Errorf("the shard got %+v, want %+v", got, want)
	}
}

// A response that ends the connection of a client must not end that between the shards, on which all their clients are.
func TestAClosedConnectionOfAClientClosesNoOther(t *testing.T) {
	connections := map[string]bool{}
	s := newShards(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("shards talk by %s", r.Proto)
		}
		connections[r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()] = true
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	for range 3 {
		response, err := s.front.Client().Get(s.front.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized || !response.Close {
			t.Errorf("the client got %s, and the connection closes: %v", response.Status, response.Close)
		}
	}
}

// Exec, attach, and port forwarding take over the connection, whatever the shards have sent each other before.
func TestAnUpgradeIsForwarded(t *testing.T) {
	s := newShards(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("take over the connection: %v", err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := buffered.ReadString('\n')
		_, _ = io.WriteString(conn, "you said "+line)
	}))
	upgrade(t, s)
	response, err := s.front.Client().Get(s.front.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a request after an upgrade got %s", response.Status)
	}
	upgrade(t, s)
}

func upgrade(t *testing.T, s *shards) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: rootsOf(s.front)}}).DialContext(t.Context(), "tcp", s.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /exec HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade was answered with %s", response.Status)
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if said, err := answers.ReadString('\n'); err != nil || said != "you said hello\n" {
		t.Errorf("the client got %q, %v", said, err)
	}
}

func rootsOf(server *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return roots
}

// T9: nobody but a shard gets in: not without a certificate, nor with that of a user, nor with one of another authority.
func TestHostileOnlyShardsForward(t *testing.T) {
	s := newShards(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request of a stranger was served") }))
	other, err := pki.OpenCA(t.TempDir(), "berth")
	if err != nil {
		t.Fatal(err)
	}
	for what, certificates := range map[string]func() (pki.Pair, error){
		"nobody":                        nil,
		"a user":                        func() (pki.Pair, error) { return s.ca.Client("jane", []string{"berth-shard"}) },
		"a shard by its serving key":    func() (pki.Pair, error) { return s.ca.Server("berth-shard") },
		"the shard of another platform": func() (pki.Pair, error) { return other.Client("berth-shard", nil) },
	} {
		config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the attacker doesn't mind
		if certificates != nil {
			pair, err := certificates()
			if err != nil {
				t.Fatal(err)
			}
			certificate, err := pair.TLS()
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		response, err := client.Get("https://" + s.address)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s got %s", what, response.Status)
		}
		client.CloseIdleConnections()
	}
}

// Shards that disagree about where a space is don't send a request round for good.
func TestARequestIsNotSentRound(t *testing.T) {
	var front http.Handler
	rounds := 0
	s := newShards(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rounds++
		front.ServeHTTP(w, r)
	}))
	front = s.front.Config.Handler
	response, err := s.front.Client().Get(s.front.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || rounds != 3 {
		t.Errorf("after %d rounds, the client got %s with %v", rounds, response.Status, response.Header)
	}
}

// A shard that is gone is no reason for a client to give up.
func TestAShardThatIsGoneIsUnavailable(t *testing.T) {
	s := newShards(t, http.NotFoundHandler())
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = gone.Addr().String()
	_ = gone.Close()
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		request, err := http.NewRequestWithContext(t.Context(), method, s.front.URL, strings.NewReader("an object"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.front.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: the client got %s with %v", method, response.Status, response.Header)
		}
	}
}

// T9: a client that sends what nobody reads, as the body of a watch, doesn't stall the requests of others between two shards.
func TestHostileUnreadBodiesStallNobody(t *testing.T) {
	unread, ended := make(chan int64, 3), make(chan struct{})
	s := newShards(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				t.Errorf("read the body of another client: %v", err)
			}
			w.Header().Set("Read", fmt.Sprint(n))
			return
		}
		unread <- r.ContentLength
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-ended // a server doesn't notice that a client has left whose body it hasn't read
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer close(ended)
	send := func(method, path string) (status string, header http.Header) {
		body := bytes.NewReader(make([]byte, 200<<10))
		request, err := http.NewRequestWithContext(ctx, method, s.front.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.front.Client().Do(request)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.Status, response.Header
	}
	send(http.MethodPost, "/api/v1/namespaces/default/services/web/proxy/")
	send(http.MethodPost, "/api/v1/namespaces/default/services/web/proxy/")
	for range 2 {
		if n := <-unread; n != 200<<10 {
			t.Errorf("the shard was sent a body of %d bytes", n)
		}
	}
	if status, header := send(http.MethodPut, "/api/v1/namespaces/default/configmaps/a"); header.Get("Read") != "204800" {
		t.Errorf("another client got %s with %v", status, header)
	}
	send(http.MethodGet, "/api/v1/configmaps?watch=1")
	if n := <-unread; n != 0 {
		t.Errorf("the body of a watch was sent on: %d bytes", n)
	}
	send(http.MethodGet, "/api/v1/namespaces/default/services/web/proxy/_search")
	if n := <-unread; n != 200<<10 {
		t.Errorf("a Service was sent a body of %d bytes", n)
	}
}
