// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package askwebhook makes clients of webhooks that review tokens and access, for upstream's plugins. Replies are limited, and callers can
// find out whether there was one. It decides nothing.
package askwebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// maxReply limits the body of a reply, in bytes.
const maxReply = 64 << 10

// Load reads the kubeconfig of a webhook, which must be served over HTTPS. timeout limits each call.
func Load(file string, timeout time.Duration) (*rest.Config, error) {
	config, err := webhook.LoadKubeconfig(file, nil)
	if err != nil {
		return nil, err
	}
	return complete(config, timeout)
}

// Parse reads a kubeconfig that names no files, as [Load] does.
func Parse(kubeconfig []byte, timeout time.Duration) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return complete(config, timeout)
}

// At returns the configuration of a client of the webhook at a URL, as [Load] does. ca has the certificates of CAs in PEM; empty for those of
// the system.
func At(url string, ca []byte, timeout time.Duration) (*rest.Config, error) {
	return complete(&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, timeout)
}

func complete(config *rest.Config, timeout time.Duration) (*rest.Config, error) {
	if u, err := url.Parse(config.Host); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the server of the cluster must be https://HOST/PATH, because tokens and names of users are sent to it")
	}
	config.Timeout, config.QPS = timeout, -1 // callers limit themselves
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &limited{next} })
	return config, nil
}

type answerKey struct{}

// Watch returns a context for the review of a token. answered reports whether there was an answer in JSON: then an error is what the answer
// says. An answer with the status code 401, as k8s-keystone-auth has for tokens that aren't good, is one as well.
func Watch(ctx context.Context) (watched context.Context, answered func() bool) {
	answer := &atomic.Bool{}
	return context.WithValue(ctx, answerKey{}, answer), answer.Load
}

// limited reads replies as far as they may be long.
type limited struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err != nil {
		return nil, fmt.Errorf("read the reply of the webhook: %w", err)
	}
	if len(body) > maxReply {
		return nil, fmt.Errorf("the reply of the webhook has more than %d bytes", maxReply)
	}
	if response.StatusCode/100 == 3 {
		return nil, fmt.Errorf("the webhook redirects with the status code %d; write its last URL into the kubeconfig", response.StatusCode)
	}
	answer, reviews := r.Context().Value(answerKey{}).(*atomic.Bool)
	if reviews && (response.StatusCode/100 == 2 || response.StatusCode == http.StatusUnauthorized) && json.Valid(body) {
		response.StatusCode = http.StatusOK // otherwise, upstream logs an error for each token that anybody sends
		answer.Store(true)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
