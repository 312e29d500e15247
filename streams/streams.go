// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// Max is how many streams a space may have open at once: each holds a connection
// to the host, and memory of the process that all spaces share.
const Max = 200

// Streams reaches a space's pods. It is safe for concurrent use.
type Streams struct {
	space     translate.Space
	host      *syncer.Host
	base      *url.URL
	transport http.RoundTripper // as the space's account
	usage     metricsv1beta1.MetricsV1beta1Interface
	logger    logr.Logger
	open      *slots
}

// New prepares the way to the pods of space.
func New(host *syncer.Host, space translate.Space, logger logr.Logger) (*Streams, error) {
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

// Call sends r to a subresource of v's host pod: log, exec, attach or
// portforward. Of r's URL only the query counts, which must have been made of
// checked options, and its headers must have been made here. Errors are for the
// tenant to see. The answer, if any, has a code below 300, or is 101, and then its
// body is a [podstream.Host]; it ends with r's context, or with Close.
func (s *Streams) Call(r *http.Request, v *corev1.Pod, subresource string) (*http.Response, error) {
	host, ok := s.host.Pod(s.space, v)
	if !ok || host.Spec.NodeName == "" {
		return nil, notThere(v)
	}
	ctx, release, err := s.open.take(r.Context())
	if err != nil {
		return nil, err
	}
	to := s.base.JoinPath("api/v1/namespaces", s.space.HostNamespace(), "pods", host.Name, subresource)
	to.RawQuery = r.URL.RawQuery
	out := r.Clone(ctx)
	out.URL, out.Host, out.RequestURI = to, "", ""
	resp, err := s.transport.RoundTrip(out)
	if err != nil {
		release()
		if r.Context().Err() == nil {
			s.logger.Error(err, "Host did not answer", "pod", host.Name, "subresource", subresource)
		}
		return nil, unreachable(v)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode >= http.StatusMultipleChoices {
		defer release()
		defer func() { _ = resp.Body.Close() }()
		return nil, s.refused(resp, v, host, subresource)
	}
	resp.Body = held(ctx, resp.Body, release)
	return resp, nil
}
