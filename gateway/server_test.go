// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster/pki"
)

// serve serves handler and returns its address and a client of the given
// CA's name for the caller, "" for none.
func serve(t *testing.T, handler http.Handler) (s *gateway.Server, address string, client func(clientCA string) *http.Client) {
	t.Helper()
	return serveBounded(t, gateway.DefaultConnections(), handler)
}

func serveBounded(
	t *testing.T, bounds gateway.Connections, handler http.Handler,
) (s *gateway.Server, address string, client func(clientCA string) *http.Client) {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "port")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Serving("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = gateway.ServeBounded(elsewhere{listener}, bounds, certificate.Get, handler, logr.Discard())
	return s, "https://" + listener.Addr().String(), func(clientCA string) *http.Client {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM())
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if clientCA != "" {
			other, err := pki.OpenCA(t.TempDir(), clientCA)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := other.Client("alice", nil)
			if err != nil {
				t.Fatal(err)
			}
			certificate, err := pair.TLS()
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 10 * time.Second}
	}
}

// T2: the API endpoint passes on a certificate of any CA, for the space alone
// knows which to trust, and serves those who have none.
func TestTheEndpointAsksForACertificateAndVerifiesNone(t *testing.T) {
	s, address, client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if peers := r.TLS.PeerCertificates; len(peers) > 0 {
			name = peers[0].Subject.CommonName + " of " + peers[0].Issuer.CommonName
		}
		fmt.Fprint(w, r.Proto, " ", name, " ", len(r.TLS.VerifiedChains))
	}))
	defer s.Stop(t.Context())
	for ca, want := range map[string]string{
		"": "HTTP/2.0 nobody 0", "space-a": "HTTP/2.0 alice of space-a 0", "space-b": "HTTP/2.0 alice of space-b 0",
	} {
		resp, err := client(ca).Get(address)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if cerr := resp.Body.Close(); err != nil || cerr != nil || string(body) != want {
			t.Errorf("CA %q: got %q (%v), want %q", ca, body, err, want)
		}
	}
}

// D6: a stop waits longer for a request that waits for the answer of another shard, than for others.
func TestStopWaitsForAnswersOfOthers(t *testing.T) {
	begun, answer := make(chan struct{}), make(chan struct{})
	var waiting atomic.Int32
	s, address, client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		waiting.Add(1)
		close(begun)
		<-answer
		waiting.Add(-1)
		w.WriteHeader(http.StatusAccepted)
	}))
	looked := make(chan struct{}) // the stop has waited as long as for others
	var once sync.Once
	s.Waiting = func() int {
		once.Do(func() { close(looked) })
		return int(waiting.Load())
	}
	status := make(chan string)
	go func() {
		resp, err := client("").Get(address)
		if err != nil {
			status <- err.Error()
			return
		}
		_ = resp.Body.Close()
		status <- resp.Status
	}()
	<-begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(context.WithoutCancel(t.Context()))
	}()
	<-looked
	close(answer)
	if got := <-status; got != "202 Accepted" {
		t.Errorf("the request got %s", got)
	}
	<-stopped
}

// A stop ends requests that would never end, such as watches, long before what
// it is given is up: other stops wait behind it. It leaves nothing running.
func TestStopEndsWhatIsUnderWay(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ended := make(chan struct{})
	s, address, client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	}))
	c := client("")
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	patient, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.Stop(patient)
	<-ended
	if patient.Err() != nil {
		t.Error("the stop took all the time it was given")
	}
	if err := s.Err(); err != nil {
		t.Errorf("a stop is no error: %v", err)
	}
	if again, err := c.Get(address); err == nil {
		t.Error("served after the stop", again.Body.Close())
	}
	c.CloseIdleConnections()
}

// elsewhere makes clients on 127.0.0.2 and so on clients on other machines, 192.0.2.2 and so on. What comes from 127.0.0.1 is of
// this one.
type elsewhere struct{ net.Listener }

func (l elsewhere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	remote := *c.RemoteAddr().(*net.TCPAddr)
	if last := remote.IP.To4()[3]; last != 1 {
		remote.IP = net.IPv4(192, 0, 2, last)
	}
	return remoteConn{c, &remote}, nil
}

type remoteConn struct {
	net.Conn
	remote net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.remote }
