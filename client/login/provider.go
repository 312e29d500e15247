// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc"
	"golang.org/x/oauth2"
	certutil "k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/internal/fielderror"
)

// providerTimeout limits each request to a provider.
const providerTimeout = 30 * time.Second

// Client is a client of a provider. Its files are read each time.
type Client struct {
	// Issuer is the URL of the provider, and ID the ID by which it knows this client.
	Issuer, ID string
	// SecretFile has the secret of the client, and CAFile the CAs of the provider's certificate. Each may be empty.
	SecretFile, CAFile string
	// Scopes are what is requested. If they are empty, it is all that the provider supports of openid, email, profile, groups, and
	// offline_access.
	Scopes []string
	// Dir is the directory of files with tokens.
	Dir string
}

// Complete makes paths absolute, and rejects invalid values. The error is a [*fielderror.Error].
func (c *Client) Complete() (err error) {
	if err := secure(c.Issuer); err != nil {
		return fielderror.New("issuer", c.Issuer, "%w; Berth accepts no other issuers", err)
	}
	if c.ID == "" {
		return fielderror.New("client-id", "", "must not be empty; it is the ID by which the issuer knows this program")
	}
	for _, path := range []*string{&c.SecretFile, &c.CAFile, &c.Dir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// secure returns an error if a URL is not one that is read over TLS, without parts that a URL of a provider doesn't have.
func secure(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" || u.Host == "":
		return errors.New("must begin with https://")
	case u.User != nil:
		return errors.New("must have no user and no password")
	}
	return nil
}

// session is a client that knows its provider.
type session struct {
	oauth2.Config
	ctx      context.Context // has the HTTP client, which the libraries take from it
	verifier *oidc.IDTokenVerifier
}

// open reads the configuration of the provider.
func (c *Client) open(ctx context.Context) (*session, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CAFile != "" {
		roots, err := certutil.NewPool(c.CAFile)
		if err != nil {
			return nil, fielderror.New("certificate-authority", c.CAFile, "%w; it must have the certificates of CAs, in PEM", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	s := &session{ctx: oidc.ClientContext(ctx, &http.Client{Transport: transport, Timeout: providerTimeout})}
	provider, err := oidc.NewProvider(s.ctx, c.Issuer)
	if err != nil {
		return nil, fielderror.New("issuer", c.Issuer, "%w%s", err, c.hint(err))
	}
	var more struct {
		Device string   `json:"device_authorization_endpoint"`
		Scopes []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, fielderror.New("issuer", c.Issuer, "read its configuration: %w", err)
	}
	s.ClientID, s.Endpoint, s.Scopes = c.ID, provider.Endpoint(), c.scopes(more.Scopes)
	s.Endpoint.DeviceAuthURL = more.Device
	for _, endpoint := range []string{s.Endpoint.AuthURL, s.Endpoint.TokenURL} {
		if err := secure(endpoint); err != nil {
			return nil, fielderror.New("issuer", c.Issuer, "it names the URL %q: %w", endpoint, err)
		}
	}
	if c.SecretFile != "" {
		secret, err := os.ReadFile(c.SecretFile)
		if err != nil {
			return nil, fielderror.New("client-secret-file", c.SecretFile, "%w", err)
		}
		s.ClientSecret = strings.TrimSpace(string(secret))
	}
	s.verifier = provider.Verifier(&oidc.Config{ClientID: c.ID})
	return s, nil
}

// hint says what to do about an error of a connection.
func (c *Client) hint(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && c.CAFile == "" {
		return "; if the issuer has a certificate of your own CA, use --certificate-authority"
	}
	return ""
}

func (c *Client) scopes(supported []string) []string {
	if len(c.Scopes) > 0 {
		return c.Scopes
	}
	return slices.DeleteFunc([]string{oidc.ScopeOpenID, "email", "profile", "groups", oidc.ScopeOfflineAccess}, func(scope string) bool {
		return scope != oidc.ScopeOpenID && len(supported) > 0 && !slices.Contains(supported, scope)
	})
}

// tokens returns what the provider has issued, if its ID token is good. nonce must be the one of the request, if that had one.
func (s *session) tokens(issued *oauth2.Token, nonce string) (*Tokens, error) {
	raw, _ := issued.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("the issuer has issued no ID token; --scope must have openid")
	}
	token, err := s.verifier.Verify(s.ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("verify the ID token: %w", err)
	}
	if nonce != "" && token.Nonce != nonce {
		return nil, errors.New("verify the ID token: it is for another login")
	}
	return &Tokens{IDToken: raw, RefreshToken: issued.RefreshToken, Subject: token.Subject, Expires: token.Expiry}, nil
}

// denied makes an error of a provider readable.
func denied(doing string, err error) error {
	response, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || response.ErrorCode == "" {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: the issuer refuses it: %.100q, %.300q", doing, response.ErrorCode, response.ErrorDescription)
}
