// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"net"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/internal/podstream"
)

// Dial connects to a port of v's, by port forwarding: the kubelet connects inside
// the pod, so that there is no address, and nothing of the host's network, to
// reach by it. The connection ends with Close; ctx bounds the dialing only.
func (s *Streams) Dial(ctx context.Context, v *corev1.Pod, port uint16) (net.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	host, err := s.Stream(life, v, "portforward", podstream.ForwardHeader(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	return closing{podstream.Dial(host, port), cancel}, nil
}

// closing is a connection with which its call ends.
type closing struct {
	net.Conn
	cancel context.CancelFunc
}

// Close implements [net.Conn].
func (c closing) Close() error {
	defer c.cancel()
	return c.Conn.Close()
}
