// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// Options say what a call is of.
type Options struct {
	// Forward tells port forwarding from exec and attach.
	Forward bool
	// Ports are those of a port forwarding whose protocol has no way to ask for
	// more; 1 to [MaxPorts].
	Ports []uint16
	// Stdin, Stdout, Stderr and TTY are the streams of exec and attach.
	Stdin, Stdout, Stderr, TTY bool
	// Pod is what the client calls the pod.
	Pod string
	// Said puts what the host says of a failure in the client's words.
	Said func(message string) string
}

// MaxPorts is how many ports one port forwarding may ask for at its beginning.
const MaxPorts = 64

// Call is one exec, attach or port forwarding.
type Call struct {
	Options
	protocol string // that is spoken with the client, without "SPDY/3.1+" if in a tunnel
	socket   bool   // WebSocket, and not SPDY
	tunnel   bool   // SPDY within WebSocket

	keepalive, linger time.Duration
}

const (
	spdyUpgrade     = "SPDY/3.1"
	spdyProtocols   = "X-Stream-Protocol-Version"
	socketProtocols = "Sec-Websocket-Protocol"
	tunnelPrefix    = spdyUpgrade + "+"
	forwardProtocol = "portforward.k8s.io"

	// Bounds of what clients may offer: those there are have half as much.
	maxProtocols, maxProtocol = 16, 64

	// keepalive is how often a client is pinged: one that has left without a word,
	// while nothing is read from it, is found out so.
	keepalive = 5 * time.Second
	// linger is how long a client may take to leave once it was told that all is
	// said: it is to read that first.
	linger = 5 * time.Second
)

// New finds the protocol of a client's request. The error is for the client to see.
func New(r *http.Request, o Options) (*Call, error) {
	c := &Call{Options: o, keepalive: keepalive, linger: linger}
	upgrade := r.Header.Values("Upgrade")
	asked := slices.ContainsFunc(r.Header.Values("Connection"), func(v string) bool { return strings.Contains(strings.ToLower(v), "upgrade") })
	var accepted, offered []string
	switch {
	case !asked || len(upgrade) != 1:
		return nil, fmt.Errorf("upgrade request required")
	case strings.EqualFold(upgrade[0], spdyUpgrade):
		accepted, offered = c.spdyProtocols(), protocols(r.Header, spdyProtocols)
	case strings.EqualFold(upgrade[0], "websocket"):
		c.socket = true
		accepted, offered = c.socketProtocols(), protocols(r.Header, socketProtocols)
		if len(offered) == 0 {
			offered = []string{""}
		}
	default:
		return nil, fmt.Errorf("upgrade to %s or websocket required", spdyUpgrade)
	}
	i := slices.IndexFunc(offered, func(p string) bool { return slices.Contains(accepted, p) })
	if i < 0 {
		return nil, fmt.Errorf("unable to negotiate protocol: client supports %q, server accepts %q", offered, accepted)
	}
	c.protocol, c.tunnel = strings.CutPrefix(offered[i], tunnelPrefix)
	if c.socket && c.Forward && !c.tunnel && (len(c.Ports) == 0 || len(c.Ports) > MaxPorts) {
		return nil, fmt.Errorf("query parameter %q: %d ports, want 1 to %d", corev1.PortHeader, len(c.Ports), MaxPorts)
	}
	return c, nil
}

func (c *Call) spdyProtocols() []string {
	if c.Forward {
		return []string{forwardProtocol}
	}
	return remotecommand.SupportedStreamingProtocols
}

func (c *Call) socketProtocols() []string {
	if c.Forward {
		return []string{tunnelPrefix + forwardProtocol, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", ""}
	}
	return []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", ""}
}

// protocols are those that a header offers.
func protocols(h http.Header, key string) (all []string) {
	for _, line := range h.Values(key) {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" && len(p) <= maxProtocol && len(all) < maxProtocols {
				all = append(all, p)
			}
		}
	}
	return all
}

// Header is that of the request to the host.
func (c *Call) Header() http.Header { return hostHeader(c.hostProtocol()) }

func (c *Call) hostProtocol() string {
	switch {
	case c.Forward:
		return forwardProtocol
	case c.socket:
		return remotecommand.StreamProtocolV4Name
	}
	return c.protocol
}

// ForwardHeader is that of a request for port forwarding to a host.
func ForwardHeader() http.Header { return hostHeader(forwardProtocol) }

func hostHeader(protocol string) http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {spdyUpgrade}, spdyProtocols: {protocol},
		// A host that has refused closes the connection without saying so. Whoever
		// gets that one is to be given another: not sent, this says that net/http may.
		"Idempotency-Key": nil,
	}
}

// channelOf numbers the channels of exec and attach.
var channelOf = map[string]int{
	corev1.StreamTypeStdin: remotecommand.StreamStdIn, corev1.StreamTypeStdout: remotecommand.StreamStdOut,
	corev1.StreamTypeStderr: remotecommand.StreamStdErr, corev1.StreamTypeError: remotecommand.StreamErr,
	corev1.StreamTypeResize: remotecommand.StreamResize,
}

// kinds are the streams that a call may have: a host waits for all of exec's, and
// for no others.
func (c *Call) kinds() []string {
	kinds := []string{corev1.StreamTypeError}
	for kind, is := range map[string]bool{
		corev1.StreamTypeData:  c.Forward,
		corev1.StreamTypeStdin: c.Stdin, corev1.StreamTypeStdout: c.Stdout, corev1.StreamTypeStderr: c.Stderr && !c.TTY, corev1.StreamTypeResize: c.TTY,
	} {
		if is {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
