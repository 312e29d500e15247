// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/berth-dev/berth/internal/podstream"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/translate"
)

// Max is how many streams a space may have open at once: each holds a connection
// to the host, and memory of the process that all spaces share.
const Max = 200

// Streams reaches a space's pods. It is safe for concurrent use.
type Streams struct {
	space     translate.Space
	host      *hostcache.Host
	base      *url.URL
	transport http.RoundTripper // as the space's account
	usage     metricsv1beta1.MetricsV1beta1Interface
	logger    logr.Logger
	open      *slots
}

// New prepares the way to the pods of space.
func New(host *hostcache.Host, space translate.Space, logger logr.Logger) (*Streams, error) {
	config := host.Account(space)
	// The second version has no upgrades; and a stream that does not read must
	// not hold up another of its connection.
	config.NextProtos = []string{"http/1.1"}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", space.Name, err)
	}
	if base.Path == "" {
		base.Path = "/" // without one, what is joined would be relative
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", space.Name, err)
	}
	usage, err := metricsv1beta1.NewForConfig(host.Account(space))
	if err != nil {
		return nil, fmt.Errorf("make host client of space %s: %w", space.Name, err)
	}
	return &Streams{
		space: space, host: host, base: base, transport: transport, usage: usage, logger: logger, open: newSlots(Max),
	}, nil
}

// Close ends all streams, and refuses further ones.
func (s *Streams) Close() { s.open.close() }

// Log reads the log of v's host pod, until it ends, or ctx does. Like all that is
// asked here, query must have been made of checked options. Errors are for the
// tenant to see.
func (s *Streams) Log(ctx context.Context, v *corev1.Pod, query url.Values) (io.ReadCloser, error) {
	return s.call(ctx, http.MethodGet, v, "log", nil, query)
}

// Stream has the host begin an exec, attach or portforward, whose connection ends
// with ctx. Errors are for the tenant to see.
func (s *Streams) Stream(ctx context.Context, v *corev1.Pod, subresource string, header http.Header, query url.Values) (podstream.Host, error) {
	body, err := s.call(ctx, http.MethodPost, v, subresource, header, query)
	if err != nil {
		return nil, err
	}
	host, ok := body.(podstream.Host)
	if !ok {
		s.logger.Error(nil, "Host did not upgrade the connection", "pod", v.Name, "subresource", subresource)
		_ = body.Close()
		return nil, unreachable(v)
	}
	return host, nil
}

// call asks a subresource of v's host pod. The body is a [podstream.Host] if the
// host has switched to SPDY; it ends with ctx, or with Close.
func (s *Streams) call(
	ctx context.Context, method string, v *corev1.Pod, subresource string, header http.Header, query url.Values,
) (io.ReadCloser, error) {
	host, ok := s.host.Pod(s.space, v)
	if !ok || host.Spec.NodeName == "" {
		return nil, notThere(v)
	}
	life, release, err := s.open.take(ctx)
	if err != nil {
		return nil, err
	}
	to := s.base.JoinPath("api/v1/namespaces", s.space.HostNamespace(), "pods", host.Name, subresource)
	to.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(life, method, to.String(), http.NoBody)
	if err != nil {
		release()
		return nil, err
	}
	maps.Copy(r.Header, header)
	resp, err := s.transport.RoundTrip(r)
	if err != nil {
		release()
		if ctx.Err() == nil {
			s.logger.Error(err, "Could not reach the host", "pod", host.Name, "subresource", subresource)
		}
		return nil, unreachable(v)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode >= http.StatusMultipleChoices {
		defer release()
		defer func() { _ = resp.Body.Close() }()
		return nil, s.refused(resp, v, host, subresource)
	}
	return held(life, resp.Body, release), nil
}
