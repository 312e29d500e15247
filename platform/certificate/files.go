// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/fielderror"
)

// rereadInterval is how often the files are compared with what was read, by the handshakes that use them.
const rereadInterval = 10 * time.Second

// Paths are the files of a certificate, in PEM. CA, the CA that issued it, may be empty: clients then use the CAs of their systems.
type Paths struct{ Cert, Key, CA string }

// Files is a certificate in files. It is read again when the files change; files that can't be used leave it as it was. Its methods
// may be called concurrently.
type Files struct {
	paths  Paths
	host   string // the name or address in URLs of the endpoint
	own    func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	clock  clock.PassiveClock
	logger logr.Logger

	mu      sync.Mutex
	read    time.Time
	pem     [2][]byte
	current *tls.Certificate
	failed  error
}

// Open reads the files. The certificate must be valid for host, unless it is empty. own returns the certificate for all names that
// the files' one isn't valid for, such as localhost.
func Open(paths Paths, host string, own func(*tls.ClientHelloInfo) (*tls.Certificate, error), clock clock.PassiveClock, logger logr.Logger) (*Files, error) {
	f := &Files{paths: paths, host: host, own: own, clock: clock, logger: logger}
	if err := f.load(); err != nil {
		return nil, fielderror.New("tls-cert-file", paths.Cert, "%w", err)
	}
	if _, err := f.CA(); err != nil {
		return nil, fielderror.New("tls-ca-file", paths.CA, "%w", err)
	}
	return f, nil
}

// Get is for [tls.Config.GetCertificate].
func (f *Files) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := hello.ServerName
	if name == "" {
		name = f.host // a client that connects to an address sends no name
	}
	if current := f.latest(); current.Leaf.VerifyHostname(name) == nil {
		return current, nil
	}
	return f.own(hello)
}

// NotAfter returns when the certificate expires.
func (f *Files) NotAfter() time.Time { return f.latest().Leaf.NotAfter }

// Check returns an error if the certificate has expired.
func (f *Files) Check() error {
	end := f.NotAfter()
	if !f.clock.Now().After(end) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(fmt.Errorf("the certificate of %s expired at %s", f.paths.Cert, end.Format(time.RFC3339)), f.failed)
}

// CA returns the PEM bundle that verifies the certificate, or nil for the CAs of clients' systems. It reads the file.
func (f *Files) CA() ([]byte, error) {
	if f.paths.CA == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.paths.CA)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil, nil // an issuer that clients' systems know needs none
	}
	if err != nil {
		return nil, err
	}
	if _, err := certutil.ParseCertsPEM(text); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.paths.CA, err)
	}
	return text, nil
}

// latest reads the files again if it is time, and returns the certificate.
func (f *Files) latest() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.Since(f.read) < rereadInterval {
		return f.current
	}
	was := f.failed
	f.failed = f.load()
	if f.failed != nil && was == nil {
		f.logger.Error(f.failed, "Could not read the certificate of the API endpoint; Berth serves the one that it has, and tries again", "file", f.paths.Cert)
	}
	return f.current
}

func (f *Files) load() error {
	f.read = f.clock.Now()
	var pem [2][]byte
	for i, path := range []string{f.paths.Cert, f.paths.Key} {
		var err error
		if pem[i], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	if f.current != nil && bytes.Equal(pem[0], f.pem[0]) && bytes.Equal(pem[1], f.pem[1]) {
		return nil
	}
	loaded, err := tls.X509KeyPair(pem[0], pem[1]) // one of them may be older than the other while they are replaced
	if err != nil {
		return err
	}
	if f.host != "" {
		if err := loaded.Leaf.VerifyHostname(f.host); err != nil {
			return fmt.Errorf("it must be valid for the host of --advertise: %w", err)
		}
	}
	if now := f.clock.Now(); now.After(loaded.Leaf.NotAfter) {
		return fmt.Errorf("it expired at %s", loaded.Leaf.NotAfter.Format(time.RFC3339))
	}
	f.pem, f.current = pem, &loaded
	return nil
}
