// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	apiregistry "k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/vcluster/podhttp"
	"github.com/berth-dev/berth/vcluster/requests"
)

// maxPage is how many bytes a page of HTML may have for its links to be changed, so
// that they lead through the proxy: for that, upstream holds a page in memory, which
// spaces share. One that is longer goes to the client as it is.
const maxPage = 256 << 10

// podProxy serves the proxies of pods and services by upstream's handlers, whatever
// the pods answer.
type podProxy struct{ upstreamStream }

// Connect returns what carries one request.
func (p podProxy) Connect(ctx context.Context, name string, opts runtime.Object, responder apiregistry.Responder) (http.Handler, error) {
	reads, read := requests.Reading(ctx)
	h, err := p.upstreamStream.Connect(reads, name, opts, responder)
	read.End() // what is left is an address
	if err != nil {
		return nil, err
	}
	upstream, ok := h.(*proxy.UpgradeAwareHandler)
	if !ok {
		return nil, errors.New("internal error: proxies have another handler")
	}
	through, ok := upstream.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("internal error: proxies have another transport")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if httpstream.IsUpgradeRequest(r) {
			upgrade(w, r, upstream, through)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			// Whose answer is compressed keeps its links: whoever wants a page gets it plain.
			r = utilnet.CloneRequest(r)
			r.Header.Del("Accept-Encoding")
		}
		upstream.Transport = pages{through}
		upstream.ServeHTTP(w, r)
	}), nil
}

// upgrade serves a request to upgrade the connection in place of upstream's handler,
// which reads the header of the answer however long it is.
func upgrade(w http.ResponseWriter, r *http.Request, h *proxy.UpgradeAwareHandler, through *http.Transport) {
	once := podhttp.Upgrading(through)
	defer once.CloseIdleConnections()
	location := *h.Location
	location.RawQuery = r.URL.RawQuery
	reverse := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = &location, p.In.Host
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			utilnet.AppendForwardedForHeader(p.Out)
		},
		Transport:    once,
		ErrorHandler: h.Responder.Error,
		ErrorLog:     log.New(io.Discard, "", 0), // tenants make them fail as often as they like
	}
	reverse.ServeHTTP(w, r)
}

// pages keeps upstream from changing what it can't hold in memory.
type pages struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.Transport.RoundTrip(r)
	if err != nil || resp.Header.Get("Location") != "" {
		return resp, err
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "text/html" { // as upstream has it
		return resp, nil
	}
	var start bytes.Buffer
	if resp.Header.Get("Content-Encoding") == "" {
		n, err := io.CopyN(&start, resp.Body, maxPage)
		if err != nil && !errors.Is(err, io.EOF) {
			_ = resp.Body.Close()
			return nil, err
		}
		if n < maxPage {
			resp.Body = withRest(&start, http.NoBody, resp.Body)
			return resp, nil
		}
	}
	resp.Body = withRest(&start, resp.Body, resp.Body)
	// The same to clients, and not to upstream.
	resp.Header.Set("Content-Type", strings.Replace(resp.Header.Get("Content-Type"), "text/html", "text/HTML", 1))
	return resp, nil
}

// withRest reads start and then rest, and closes body.
func withRest(start, rest io.Reader, body io.Closer) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(start, rest), body}
}
