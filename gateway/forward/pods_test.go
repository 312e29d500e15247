// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/klog/v2/ktesting"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/forward"
	"github.com/berth-dev/berth/vcluster/pki"
)

// T4: a pod reaches its own space by the endpoint for pods, by whatever path and headers, also if another shard has the space, and by no
// more rights than there.
func TestHostilePodsStayInTheirSpace(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "berth")
	if err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	served := make(chan string, 1)
	serves := func(endpoint string) func(space string) http.Handler {
		return func(space string) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served <- endpoint + " " + space + " " + r.URL.Path })
		}
	}
	public, pods := &gateway.Router{Lookup: serves("clients")}, gateway.Pods{Router: &gateway.Router{Lookup: serves("pods")}}
	address := serve(t, ca, "berth-1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if space := forward.PodOf(r); space != "" {
			pods.ServeSpace(space, w, r)
			return
		}
		public.ServeHTTP(w, r)
	}), logger)
	forwarder := forward.New(ca, func(string) (string, error) { return address, nil }, logger)
	certificate, err := ca.Serving("kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := gateway.ServePods(listener, gateway.Pods{
		SpaceAt:     func(netip.Addr) (string, bool) { return "solar", true },
		Certificate: func(string) (*tls.Certificate, error) { return certificate.Get(nil) },
		Router: &gateway.Router{Elsewhere: func(space string, _ *http.Request) (http.Handler, func()) {
			return forward.OfPod(space, forwarder.To("berth-1")), nil
		}},
	}, logger)
	t.Cleanup(func() { server.Stop(t.Context()) })

	for target, want := range map[string]string{
		"/version":                             "/version",
		"http:https://x/spaces/lunar/version":  "/",
		"http:/spaces/lunar/version":           "/spaces/lunar/version",
		"http://x/spaces/lunar/version":        "/spaces/lunar/version",
		"/spaces/lunar/version":                "/spaces/lunar/version",
		"/../lunar/version":                    "/../lunar/version",
		"/..%2flunar/version":                  "/../lunar/version",
		"https://lunar.example.com/api?watch=": "/api",
	} {
		if err := get(listener.Addr().String(), target); err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		select {
		case got := <-served:
			if got != "pods solar "+want {
				t.Errorf("%s: the other shard served %q", target, got)
			}
		default:
			if !slices.Contains([]string{"/"}, want) {
				t.Errorf("%s: the other shard served nothing", target)
			}
		}
	}
}

// get sends a request whose target no client of Go sends.
func get(address, target string) error {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec,noctx // an attacker
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: x\r\nX-Berth-Forwarded-Pod: lunar\r\nX-Berth-Forwarded-Hops: 1\r\nConnection: close, X-Berth-Forwarded-Pod\r\n\r\n")
	if err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	return errors.Join(err, response.Body.Close())
}
