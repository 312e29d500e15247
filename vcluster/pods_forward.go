// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	cri "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Forward is a way to the ports of a pod.
type Forward interface {
	// Carry connects to a port, and carries what is said until one side ends.
	Carry(port uint16, client io.ReadWriter) error
	// Done is closed when there is no way any more.
	Done() <-chan bool
	io.Closer
}

// forwarding is one call of port forwarding. It is served as a kubelet does, with
// upstream's code: what the host says of a port that does not answer is of the
// inside of its nodes, and goes no further.
type forwarding struct {
	pod *corev1.Pod
	to  Forward
}

// ServeHTTP serves a client in the protocol that it speaks.
func (f forwarding) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		proxy.NewTunnelingHandler(http.HandlerFunc(f.serve)).ServeHTTP(w, r)
		return
	}
	f.serve(w, r)
}

func (f forwarding) serve(w http.ResponseWriter, r *http.Request) {
	ports, err := cri.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !wsstream.IsWebSocketRequest(r) {
		w = &upgrader{ResponseWriter: w}
	}
	cri.ServePortForward(w, r, f, f.pod.Name, string(f.pod.UID), ports, streamIdle, streamCreation, cri.SupportedProtocols)
}

// PortForward implements [cri.PortForwarder].
func (f forwarding) PortForward(_ context.Context, _, _ string, port int32, client io.ReadWriteCloser) error {
	if port < 1 || port > 1<<16-1 {
		return fmt.Errorf("%d is not a port", port)
	}
	return f.to.Carry(uint16(port), client)
}
