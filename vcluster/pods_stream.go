// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"
)

// podLog serves logs.
type podLog struct {
	*podrest.LogREST
	registry podGetter
	pods     Pods
}

// Get returns what streams the log.
func (r podLog) Get(ctx context.Context, name string, opts runtime.Object) (runtime.Object, error) {
	checked, err := r.LogREST.Get(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	pod, err := r.registry.get(ctx, name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return checked, nil // nothing to read from, which upstream's streams
	}
	o, ok := opts.(*api.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", opts)
	}
	o = o.DeepCopy()
	// Whether kubelets prove who they are is the platform's to say.
	o.InsecureSkipTLSVerifyBackend = false
	if o.Stream != nil && *o.Stream == api.LogStreamAll {
		o.Stream = nil // the default, which a server without the feature refuses to be told
	}
	query, err := queryOf(o, pod)
	if err != nil {
		return nil, err
	}
	return &logStream{Pod: pod, pods: r.pods, query: query, follow: o.Follow}, nil
}

// logStream is a log that is read when it is served.
type logStream struct {
	*corev1.Pod // has it be an object, as upstream's own streamer is

	pods   Pods
	query  url.Values
	follow bool
}

var _ apiregistry.ResourceStreamer = &logStream{}

// InputStream implements [apiregistry.ResourceStreamer].
func (s *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/?"+s.query.Encode(), http.NoBody)
	if err != nil {
		return nil, false, "", err
	}
	resp, err := s.pods.Call(r, s.Pod, "log")
	if err != nil {
		return nil, false, "", err
	}
	return lateEnd{resp.Body}, s.follow, "text/plain", nil
}

// podStream serves exec, attach and port forwarding.
type podStream struct {
	upstreamStream
	registry    podGetter
	pods        Pods
	subresource string
}

type upstreamStream interface {
	apiregistry.Storage
	apiregistry.Connecter
}

// Connect returns what carries one call.
func (r podStream) Connect(ctx context.Context, name string, opts runtime.Object, responder apiregistry.Responder) (http.Handler, error) {
	if _, err := r.upstreamStream.Connect(ctx, name, opts, responder); err != nil {
		return nil, err
	}
	pod, err := r.registry.get(ctx, name)
	if err != nil {
		return nil, err
	}
	query, err := queryOf(opts, pod)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Transport: roundTrip(func(out *http.Request) (*http.Response, error) {
			resp, err := r.pods.Call(out, pod, r.subresource)
			if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
				_ = resp.Body.Close()
				err = apierrors.NewInternalError(fmt.Errorf("invalid upgrade response: status code %d", resp.StatusCode))
			}
			return resp, err
		}),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{RawQuery: query.Encode()}
			p.Out.Host, p.Out.Body, p.Out.ContentLength = "", http.NoBody, 0
			p.Out.Header = upgradeHeader(p.Out.Header)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header = upgradeHeader(resp.Header)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { responder.Error(err) },
		ErrorLog:     log.New(io.Discard, "", 0), // that a client or a pod went away is no news
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isUpgrade(r) {
			responder.Error(apierrors.NewBadRequest("Upgrade request required"))
			return
		}
		proxy.ServeHTTP(wholeHijacker{w}, r)
	}), nil
}

// wholeHijacker hands out connections that close as a whole: a client must not
// hold a stream whose pod has ended by not closing its half.
type wholeHijacker struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (h wholeHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return struct{ net.Conn }{conn}, buffered, nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// queryOf are the options of a call as a client would send them, with the
// container named. Nothing that was in the client's own query is in it.
func queryOf(opts runtime.Object, pod *corev1.Pod) (url.Values, error) {
	query, err := legacyscheme.ParameterCodec.EncodeParameters(opts, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	if _, forward := opts.(*api.PodPortForwardOptions); !forward && query.Get("container") == "" {
		if len(pod.Spec.Containers) == 0 {
			return nil, errors.New("internal error: a pod without containers")
		}
		query.Set("container", pod.Spec.Containers[0].Name)
	}
	return query, nil
}

// isUpgrade tells a request for one of the protocols that streams have.
func isUpgrade(r *http.Request) bool {
	asked := false
	for _, v := range r.Header.Values("Connection") {
		asked = asked || strings.Contains(strings.ToLower(v), "upgrade")
	}
	protocol := r.Header.Values("Upgrade")
	return asked && len(protocol) == 1 && (strings.EqualFold(protocol[0], "SPDY/3.1") || strings.EqualFold(protocol[0], "websocket"))
}

const (
	maxSubprotocols = 16
	maxSubprotocol  = 64 // bytes; those there are have half of it
	// bearerSubprotocol begins what browsers, which cannot set a header, send a
	// token as. It is meant for this server and no other.
	bearerSubprotocol = "base64url.bearer.authorization."
)

// upgradeHeader is what of a header has to do with streams: all else is between
// this server and its client, or between those who carry the stream on.
func upgradeHeader(h http.Header) http.Header {
	out := http.Header{}
	for _, key := range []string{
		"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Accept",
	} {
		if v := h.Get(key); v != "" {
			out.Set(key, v)
		}
	}
	if protocols := subprotocols(h, "Sec-Websocket-Protocol"); len(protocols) > 0 {
		out.Set("Sec-Websocket-Protocol", strings.Join(protocols, ", "))
	}
	for _, p := range subprotocols(h, "X-Stream-Protocol-Version") {
		out.Add("X-Stream-Protocol-Version", p)
	}
	return out
}

func subprotocols(h http.Header, key string) (protocols []string) {
	for _, line := range h.Values(key) {
		for p := range strings.SplitSeq(line, ",") {
			p = strings.TrimSpace(p)
			if p != "" && len(p) <= maxSubprotocol && !strings.HasPrefix(p, bearerSubprotocol) && len(protocols) < maxSubprotocols {
				protocols = append(protocols, p)
			}
		}
	}
	return protocols
}
