// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/gateway"
)

// These headers are what a forwarding shard says of a request and of its client. They are removed from what clients send.
const (
	headerPrefix      = "X-Berth-Forwarded-"
	certificateHeader = headerPrefix + "Certificate" // DER in base64; missing if the client has presented none
	addressHeader     = headerPrefix + "Address"     // IP:PORT
	hopsHeader        = headerPrefix + "Hops"        // how often the request was forwarded
	podHeader         = headerPrefix + "Pod"         // the space of the client, if that is a pod at the endpoint for pods
	// closeHeader is of a response after which the client's connection is to be closed, and not that between shards.
	closeHeader = headerPrefix + "Close"
	// holderHeader is of a response to a request that has proved whose its client's connection is.
	holderHeader = headerPrefix + "Holder"
)

// maxHops is how often a request may be forwarded: to the shard that has the space, and on from there if the space has just moved. Shards
// that disagree for longer about where it is must not send it round.
const maxHops = 3

type hopsKey struct{}

// hopsOf returns how often a request was forwarded to here.
func hopsOf(ctx context.Context) int {
	hops, _ := ctx.Value(hopsKey{}).(int)
	return hops
}

type podKey struct{}

// OfPod returns a handler that forwards requests of pods of a space by next. The shard that has the space finds it by [PodOf].
func OfPod(space string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), podKey{}, space)))
	})
}

// PodOf returns the space of the pod that has sent a request to the endpoint for pods of another shard; "" if it is no such request. The
// request is for that space, and its path is that inside the space.
func PodOf(r *http.Request) string {
	space, _ := r.Context().Value(podKey{}).(string)
	return space
}

// mark has the headers of a forwarded request say who its client is.
func mark(out http.Header, in *http.Request) {
	for name := range out {
		if strings.HasPrefix(name, headerPrefix) {
			out.Del(name)
		}
	}
	out.Set(addressHeader, in.RemoteAddr)
	out.Set(hopsHeader, strconv.Itoa(hopsOf(in.Context())+1))
	if space := PodOf(in); space != "" {
		out.Set(podHeader, space)
	}
	if in.TLS != nil && len(in.TLS.PeerCertificates) > 0 {
		out.Set(certificateHeader, base64.StdEncoding.EncodeToString(in.TLS.PeerCertificates[0].Raw))
	}
}

type clientKey struct{}

// noteAnswer does at the connection of the client what a response of another shard says of it. The error is that of no response: the
// request has been served.
func noteAnswer(r *http.Response) error {
	if holder := r.Header.Get(holderHeader); holder != "" {
		r.Header.Del(holderHeader)
		if err := gateway.HoldFor(r.Request, holder); err != nil { // it stays a stranger's
			r.Header.Set("Connection", "close")
		}
	}
	if r.Header.Get(closeHeader) != "" {
		r.Header.Del(closeHeader)
		if w, ok := r.Request.Context().Value(clientKey{}).(http.ResponseWriter); ok {
			gateway.CloseAfter(w)
		}
	}
	return nil
}

// received returns a request from another shard as its client sent it.
func received(r *http.Request) (*http.Request, error) {
	hops, err := strconv.Atoi(r.Header.Get(hopsHeader))
	if err != nil || hops < 1 {
		return nil, fmt.Errorf("%s is %q, want a number", hopsHeader, r.Header.Get(hopsHeader))
	}
	state := &tls.ConnectionState{HandshakeComplete: true, Version: tls.VersionTLS13}
	if encoded := r.Header.Get(certificateHeader); encoded != "" {
		der, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", certificateHeader, err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", certificateHeader, err)
		}
		state.PeerCertificates = []*x509.Certificate{certificate}
	}
	address, pod := r.Header.Get(addressHeader), r.Header.Get(podHeader)
	for _, name := range []string{certificateHeader, addressHeader, hopsHeader, podHeader} {
		r.Header.Del(name)
	}
	ctx := context.WithValue(r.Context(), hopsKey{}, hops)
	if pod != "" {
		ctx = context.WithValue(ctx, podKey{}, pod)
	}
	original := r.WithContext(ctx)
	original.TLS, original.RemoteAddr = state, address
	return original, nil
}
