// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/definitions"
)

const (
	webhookDialTime = 5 * time.Second
	webhookIdleTime = 30 * time.Second
	// webhookHeaders is how many bytes the headers of an answer may have.
	webhookHeaders = 64 << 10
)

// sharedWebhook is a conversion webhook of the host as one space calls it.
type sharedWebhook struct {
	*definitions.Webhook
	target    *url.URL
	transport *http.Transport
	slots     chan struct{} // has one for each call of the space
}

func newSharedWebhook(w *definitions.Webhook) (*sharedWebhook, error) {
	target, err := targetOf(w.Client())
	if err != nil {
		return nil, err
	}
	roots, err := rootsOf(w.Client())
	if err != nil {
		return nil, err
	}
	return &sharedWebhook{Webhook: w, target: target, slots: make(chan struct{}, mostSharedCalls), transport: &http.Transport{
		DialContext:            (&net.Dialer{Timeout: webhookDialTime}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, ServerName: target.Hostname(), MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    webhookDialTime,
		MaxIdleConnsPerHost:    mostSharedCalls,
		IdleConnTimeout:        webhookIdleTime,
		MaxResponseHeaderBytes: webhookHeaders,
		DisableCompression:     true,
	}}, nil
}

// targetOf returns the URL of a webhook. That of a service is resolved by the DNS of the host cluster.
func targetOf(c *apiextensionsv1.WebhookClientConfig) (*url.URL, error) {
	if s := c.Service; s != nil {
		host := net.JoinHostPort(s.Name+"."+s.Namespace+".svc", strconv.Itoa(int(ptr.Deref(s.Port, 443))))
		return url.Parse("https://" + host + ptr.Deref(s.Path, ""))
	}
	target, err := url.Parse(ptr.Deref(c.URL, ""))
	if err != nil {
		return nil, fmt.Errorf("parse clientConfig.url: %w", err)
	}
	if target.Scheme != "https" || target.Host == "" {
		return nil, fmt.Errorf("clientConfig.url %q is not an https URL with a host", target)
	}
	return target, nil
}

// rootsOf returns the CAs of a webhook; nil means those of the system.
func rootsOf(c *apiextensionsv1.WebhookClientConfig) (*x509.CertPool, error) {
	if len(bytes.TrimSpace(c.CABundle)) == 0 {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CABundle) {
		return nil, errors.New("clientConfig.caBundle has no certificate")
	}
	return roots, nil
}

// begin waits until the space may call the webhook.
func (w *sharedWebhook) begin(ctx context.Context) error {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := w.Begin(ctx); err != nil {
		<-w.slots
		return context.Cause(ctx)
	}
	return nil
}

func (w *sharedWebhook) end() {
	w.End()
	<-w.slots
}

// request returns the request of a space's API server as it is sent to the webhook.
func (w *sharedWebhook) request(ctx context.Context, r *http.Request) *http.Request {
	to := r.Clone(ctx)
	target := *w.target
	target.RawQuery = r.URL.RawQuery
	to.URL, to.Host = &target, ""
	to.Header = http.Header{
		"Content-Type": r.Header.Values("Content-Type"), "Accept": r.Header.Values("Accept"), "User-Agent": {"berth"},
		"X-Idempotency-Key": {}, // isn't sent: if the webhook has closed an idle connection, the call is made again
	}
	return to
}
