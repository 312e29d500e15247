// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testruntime

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Dialers are clients of port forwarding at an address, in the protocols that
// kubectl speaks.
func Dialers(t *testing.T, config *rest.Config, at *url.URL) map[string]httpstream.Dialer {
	t.Helper()
	upgrade, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, config)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]httpstream.Dialer{
		"SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: upgrade}, http.MethodPost, at), "WebSocket": tunnel,
	}
}

// Forward forwards ports, as kubectl does, until the test ends.
func Forward(t *testing.T, dialer httpstream.Dialer, ports ...int) []portforward.ForwardedPort {
	t.Helper()
	var free []string
	for _, port := range ports {
		free = append(free, "0:"+strconv.Itoa(port))
	}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewForStreaming(dialer, free, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	forwarded, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return forwarded
}
