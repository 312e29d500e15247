// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/control"
)

// Endpoint is where the process of a space serves its API, and the commands about it. They are separate, so that no
// request of a tenant can be a command.
type Endpoint struct {
	where         string
	api, commands func(ctx context.Context) (net.Conn, error)
}

// Sockets returns the endpoint that [Serve] serves in dir.
func Sockets(dir string) Endpoint {
	dial := func(name string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) { return control.DialSocket(ctx, filepath.Join(dir, name)) }
	}
	return Endpoint{"in " + dir, dial(apiSocket), dial(control.Name)}
}

// Addresses are the addresses of a process on another machine, as HOST:PORT.
type Addresses struct{ API, Commands string }

// Remote returns the endpoint of a process that [ServeTLS] runs. locate returns its addresses, which may change; config
// is the result of [ClientTLS].
func Remote(locate func() (Addresses, error), config *tls.Config) Endpoint {
	dial := func(of func(Addresses) string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			addresses, err := locate()
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: config}).DialContext(ctx, "tcp", of(addresses))
		}
	}
	return Endpoint{"in its pod", dial(func(a Addresses) string { return a.API }), dial(func(a Addresses) string { return a.Commands })}
}

// platformName is the name of the platform in its client certificates.
const platformName = "berth-platform"

// ServerName returns the name in the server certificate of a space's process. It contains the space, so that the
// process of another space can't replace it.
func ServerName(space string) string { return space + ".dedicated.berth.dev" }

// PlatformUser returns the user for the platform's client certificate. The processes have server certificates, with
// which they can't impersonate the platform.
func PlatformUser() string { return platformName }

// ClientTLS returns the TLS configuration with which a platform calls the process of a space. roots verify its
// certificate, and certificate returns the platform's own.
func ClientTLS(space string, roots func() []byte, certificate func() (tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: ServerName(space),
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, by the roots of that moment
		VerifyConnection: func(state tls.ConnectionState) error {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(roots()) {
				return errors.New("the CA of dedicated spaces is missing")
			}
			options := x509.VerifyOptions{Roots: pool, DNSName: ServerName(space), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			if _, err := state.PeerCertificates[0].Verify(options); err != nil {
				return fmt.Errorf("verify the process of space %s: %w", space, err)
			}
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := certificate()
			return &c, err
		},
	}
}

// These are files in the directory that [ServerTLS] reads. They may be replaced at any time.
const (
	CertFile    = "tls.crt"
	KeyFile     = "tls.key"
	ClientsFile = "clients.crt"
)

// ServerTLS returns the TLS configuration of a space's process, which accepts only its platform. It reads its files for
// each connection.
func ServerTLS(dir string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
			if err != nil {
				return nil, fmt.Errorf("read the certificate of the space's process: %w", err)
			}
			clients, err := os.ReadFile(filepath.Join(dir, ClientsFile))
			if err != nil {
				return nil, fmt.Errorf("read the CA of the platform: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(clients) {
				return nil, fmt.Errorf("%s: the CA of the platform is missing", ClientsFile)
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
				VerifyConnection: func(state tls.ConnectionState) error {
					if name := state.PeerCertificates[0].Subject.CommonName; name != platformName {
						return fmt.Errorf("the client is %q, want %s", name, platformName)
					}
					return nil
				},
			}, nil
		},
	}
}
