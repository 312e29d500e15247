// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster/pki"
)

// X4: the API endpoint serves with a new certificate before the old one ends, without a
// restart; watches that are under way go on.
func TestThePortsCertificateIsRenewedUnderWay(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	ca, err := pki.OpenCAWithClock(t.TempDir(), "port", clock)
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
	lines := make(chan string)
	s := gateway.Serve(listener, certificate.Get, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/watch" {
			return
		}
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case line := <-lines:
				fmt.Fprintln(w, line)
			case <-r.Context().Done():
				return
			}
		}
	}), logr.Discard())
	defer s.Stop(context.WithoutCancel(t.Context()))

	open := func(path string) (*http.Response, *x509.Certificate) {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM())
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, Time: clock.Now, MinVersion: tls.VersionTLS12}}
		t.Cleanup(transport.CloseIdleConnections)
		resp, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatalf("on %s: %v", clock.Now(), err)
		}
		return resp, resp.TLS.PeerCertificates[0]
	}
	watch, last := open("/watch")
	defer watch.Body.Close()
	from := bufio.NewReader(watch.Body)
	begin, renewals := clock.Now(), 0
	for clock.Since(begin) < 12*365*24*time.Hour {
		clock.SetTime(clock.Now().Add(20 * 24 * time.Hour))
		resp, current := open("/")
		_ = resp.Body.Close()
		if !current.Equal(last) {
			renewals++
		}
		last = current
		lines <- "event"
		if line, err := from.ReadString('\n'); err != nil || line != "event\n" {
			t.Fatalf("the watch that is under way brings %q (%v)", line, err)
		}
	}
	if renewals < 12 {
		t.Errorf("renewed %d times in 12 years", renewals)
	}
}
