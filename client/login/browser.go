// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coreos/go-oidc"
	"golang.org/x/oauth2"
)

// callback is the path of the redirect URL. Its host is localhost, and not an address, as providers compare it.
const callback = "/callback"

// answer is what a browser brings back from the provider.
type answer struct {
	code string
	err  error
}

// Browser gets tokens by a browser on this machine, which must open the URL that show gets. The provider sends it back to a port of the
// loopback interface; a free one if port is 0. A program that listens there in our place can't use what it gets (PKCE).
func (c *Client) Browser(ctx context.Context, port int, show func(url string)) (*Tokens, error) {
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	state, nonce, verifier := oauth2.GenerateVerifier(), oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	answers := make(chan answer, 1)
	port, stop, err := serveCallback(port, state, answers)
	if err != nil {
		return nil, err
	}
	defer stop()
	s.RedirectURL = "http://localhost:" + strconv.Itoa(port) + callback
	show(s.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier), oauth2.AccessTypeOffline))
	var got answer
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the browser: %w; on a machine without a browser, use --device", ctx.Err())
	case got = <-answers:
	}
	if got.err != nil {
		return nil, got.err
	}
	issued, err := s.Exchange(s.ctx, got.code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, denied("get tokens", err)
	}
	tokens, err := s.tokens(issued, nonce)
	if err != nil {
		return nil, err
	}
	return tokens, c.replace(tokens)
}

// serveCallback serves the redirect URL on the loopback addresses of a port until stop is called.
func serveCallback(port int, state string, answers chan<- answer) (served int, stop func(), err error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, nil, fmt.Errorf("listen for the browser: %w; choose another --redirect-port, or use --device", err)
	}
	served = listener.Addr().(*net.TCPAddr).Port
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callback, func(w http.ResponseWriter, r *http.Request) { handleCallback(w, r, state, answers) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	go func() { _ = server.Serve(listener) }()
	if six, err := net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(served))); err == nil { // where there is IPv6
		go func() { _ = server.Serve(six) }()
	}
	return served, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // for the browser to get its page
		defer cancel()
		_ = server.Shutdown(ctx)
	}, nil
}

// handleCallback takes an answer with the state that only the provider and this process know. Others are ignored: any page can send them.
func handleCallback(w http.ResponseWriter, r *http.Request, state string, answers chan<- answer) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	query := r.URL.Query()
	if query.Get("state") != state {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "This is not the answer to the login that is in progress. Run berth login again.\n")
		return
	}
	got, page := answer{code: query.Get("code")}, "You are logged in if the terminal says so. You can close this page.\n"
	if code := query.Get("error"); code != "" || got.code == "" {
		got.err = fmt.Errorf("log in: the issuer refuses it: %.100q, %.300q", code, query.Get("error_description"))
		page = "You are not logged in. The terminal says why.\n"
		if code == "" {
			got.err = errors.New("log in: the answer of the issuer has no code")
		}
	}
	_, _ = io.WriteString(w, page)
	select {
	case answers <- got:
	default: // there was one
	}
}
