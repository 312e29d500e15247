// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// testGateway is a TLS port that several spaces share, each under a path of its
// own, as the gateway has it: it asks for client certificates and verifies none.
type testGateway struct {
	url string
	ca  *pki.CA

	mu     sync.Mutex
	spaces map[string]http.Handler
}

func newTestGateway(t *testing.T) *testGateway {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	d := &testGateway{ca: ca, spaces: map[string]http.Handler{}}
	s := httptest.NewUnstartedServer(d)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	d.url = s.URL
	return d
}

func (d *testGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/spaces/"), "/")
	d.mu.Lock()
	h := d.spaces[name]
	d.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/spaces/"+name, h).ServeHTTP(w, r)
}

// config is a space's configuration behind the gateway.
func (d *testGateway) config(t *testing.T, name string) vcluster.Config {
	t.Helper()
	c := config(t, name)
	c.Endpoint = d.url + "/spaces/" + name
	c.ServingCA = d.ca.PEM()
	return c
}

// start starts a space behind the gateway.
func (d *testGateway) start(t *testing.T, c vcluster.Config) *vcluster.ControlPlane {
	t.Helper()
	p := start(t, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spaces[c.Name] = p.Handler()
	return p
}

// admin is what the space's administrator gets.
func admin(t *testing.T, p *vcluster.ControlPlane) *rest.Config {
	t.Helper()
	return user(t, p, "admin", pki.AdminGroup)
}

func user(t *testing.T, p *vcluster.ControlPlane, name string, groups ...string) *rest.Config {
	t.Helper()
	kubeconfig, err := p.ClientKubeconfig(name, groups)
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	return c
}
