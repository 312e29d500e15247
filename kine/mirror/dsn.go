// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Config says how to connect to a server.
type Config struct {
	// DSN is as scheme://user:password@host:1234,host2:1234/path?parameter=value. Errors don't contain it.
	DSN string
	// CA has the certificates in PEM, with one of which the server must prove who it is. If it is empty, those of the system do.
	CA []byte
	// Cert and Key are a certificate for the client, and its key, in PEM. They may be empty.
	Cert, Key []byte
}

// Target is what a DSN says.
type Target struct {
	// Secure means that the connection uses TLS.
	Secure bool
	// Hosts are the servers, each with a port.
	Hosts []string
	// User and Password are both set, or none is.
	User, Password string
	// Path has no slash at its start and end.
	Path       string
	Parameters url.Values
}

// Parse does what url.Parse does, which allows one host only. secure and insecure are the schemes. Its errors quote nothing,
// because they could quote the password.
func (c *Config) Parse(insecure, secure string) (*Target, error) {
	shape := fmt.Errorf("the DSN must be as %s://user:password@host:port,host2:port/path", secure)
	scheme, rest, ok := strings.Cut(c.DSN, "://")
	if !ok || scheme != secure && scheme != insecure || strings.Contains(rest, "#") {
		return nil, shape
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	t := &Target{Secure: scheme == secure}
	var err, userErr, passwordErr error
	if t.Parameters, err = url.ParseQuery(query); err != nil {
		return nil, errors.New("the parameters of the DSN are not escaped as in a URL")
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		t.User, userErr = url.PathUnescape(user)
		t.Password, passwordErr = url.PathUnescape(password)
		if userErr != nil || passwordErr != nil {
			return nil, errors.New("the user or the password of the DSN is not escaped as in a URL")
		}
		if t.User == "" || t.Password == "" {
			return nil, errors.New("the DSN must have both a user and a password, or none")
		}
		authority = authority[at+1:]
	}
	t.Hosts = strings.Split(authority, ",")
	for _, host := range t.Hosts {
		name, port, err := net.SplitHostPort(host)
		if err != nil || name == "" || port == "" || strings.Trim(port, "0123456789") != "" || strings.ContainsAny(name, " /\\%@") {
			return nil, shape
		}
	}
	if t.Path, err = url.PathUnescape(strings.TrimSuffix(path, "/")); err != nil || t.Path == "" {
		return nil, shape
	}
	return t, nil
}

// TLS returns how a connection that uses TLS does so.
func (c *Config) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("the CA has no certificate in PEM")
		}
	}
	if len(c.Cert) > 0 || len(c.Key) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, errors.New("the client's certificate and key are not a pair in PEM") // the error might quote the key
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
