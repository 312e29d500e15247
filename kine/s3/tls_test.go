// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// A storage proves who it is by the CA of the Secret, and may want a certificate of the client.
func TestAConnectionUsesTheCertificatesOfTheSecret(t *testing.T) {
	dsn := newDSN(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", u.Host }})
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports the failed handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dsn = "https" + strings.TrimPrefix(strings.Replace(dsn, u.Host, strings.TrimPrefix(server.URL, "https://"), 1), "http")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	for name, c := range map[string]struct {
		config mirror.Config
		works  bool
	}{
		"All":                 {mirror.Config{DSN: dsn, CA: cert, Cert: cert, Key: keyText}, true},
		"WithoutTheCA":        {mirror.Config{DSN: dsn, Cert: cert, Key: keyText}, false},
		"WithoutACertificate": {mirror.Config{DSN: dsn, CA: cert}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(c.config, demo)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, err = l.TakeOver(t.Context(), nil)
			if works := err == nil; works != c.works || !works && l.Fault(err) != dbms.Lost {
				t.Errorf("take over: %v", err)
			}
		})
	}
}
