// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/portforward"

	"github.com/berth-dev/berth/internal/safego"
)

// Host is a connection to a host that has switched to SPDY.
type Host interface {
	io.ReadWriteCloser
	// Done is closed once the connection is, by whomever.
	Done() <-chan struct{}
}

// client is the client's end of a call.
type client interface {
	sink
	// begin opens what is open from the beginning.
	begin(h *host) error
	// read carries what the client says until it leaves.
	read(h *host) error
	// ping fails if the client has left, if not at once.
	ping() error
	// end says that nothing follows.
	end()
}

// Serve answers the client, and carries the call until client or host end it. It
// closes to, as soon as there is nothing to carry any more.
func (c *Call) Serve(w http.ResponseWriter, r *http.Request, to Host) {
	defer func() { _ = to.Close() }()
	client, conn, err := c.answer(w, r)
	if err != nil {
		return // the client has been told
	}
	defer func() { _ = conn.Close() }()
	h := newHost(to)
	h.verdict = c.hostProtocol() == remotecommand.StreamProtocolV4Name
	if client.begin(h) != nil {
		return
	}
	var work sync.WaitGroup
	left := make(chan struct{})
	end := func(error) {
		_ = to.Close()
		_ = conn.Close()
	}
	safego.Go(&work, "read from a client of a pod", func() {
		defer close(left)
		err := client.read(h) // it has left, or is not worth listening to
		end(err)              // with it ends a write that nobody reads
	}, end)
	safego.Go(&work, "ping a client of a pod", func() {
		if err := c.ping(client, left); err != nil {
			end(err) // with it ends a write that holds up the reading
		}
	}, end)
	safego.Go(&work, "wait for a client of a pod", func() {
		select {
		case <-left:
			return
		case <-to.Done():
		}
		goodbye := time.NewTimer(c.linger)
		defer goodbye.Stop()
		select {
		case <-left:
		case <-goodbye.C:
			_ = conn.Close()
		}
	}, end)
	h.run(client)
	_ = to.Close() // others may take its place, however long the client reads
	client.end()
	work.Wait()
}

// ping pings the client until it has left.
func (c *Call) ping(client client, left <-chan struct{}) error {
	again := time.NewTicker(c.keepalive)
	defer again.Stop()
	for {
		select {
		case <-left:
			return nil
		case <-again.C:
			if err := client.ping(); err != nil {
				return err
			}
		}
	}
}

// answer takes the client's connection over.
func (c *Call) answer(w http.ResponseWriter, r *http.Request) (client, net.Conn, error) {
	if !c.socket {
		conn, buffered, err := answerSPDY(w, c.protocol)
		if err != nil {
			return nil, nil, err
		}
		client, err := newSPDYClient(c, conn, buffered)
		return client, conn, err
	}
	protocol := c.protocol
	if c.tunnel {
		protocol = tunnelPrefix + protocol
	}
	upgrader := websocket.Upgrader{
		Subprotocols: []string{protocol},
		CheckOrigin:  func(*http.Request) bool { return true }, // no cookie is a credential here
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil, err
	}
	if !c.tunnel {
		return newSocketClient(c, conn), conn.NetConn(), nil
	}
	tunnel := portforward.NewTunnelingConnection("server", conn)
	client, err := newSPDYClient(c, tunnel, bufio.NewReader(tunnel))
	return client, conn.NetConn(), err
}
