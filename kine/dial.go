// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// pipeBuffer is the memory of a connection, in each direction.
	pipeBuffer = 64 << 10
	// maxRequest is etcd's limit of a request (1.5 MiB), plus the overhead of gRPC.
	maxRequest = 2 << 20
)

// dialer serves the bridge, without watches, by gRPC over connections in memory. The server starts with the first
// connection, because most of an API server uses Store.Client and never needs it.
type dialer struct {
	bridge *bridge

	mu       sync.Mutex
	closed   bool
	listener *bufconn.Listener
	server   *grpc.Server
	done     sync.WaitGroup
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	l, err := d.start()
	if err != nil {
		return nil, err
	}
	return l.DialContext(ctx)
}

func (d *dialer) start() (*bufconn.Listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	if d.server == nil {
		d.listener = bufconn.Listen(pipeBuffer)
		d.server = grpc.NewServer(
			grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(math.MaxInt32), grpc.WaitForHandlers(true),
			grpc.UnaryInterceptor(recovering))
		etcdserverpb.RegisterKVServer(d.server, d.bridge)
		etcdserverpb.RegisterLeaseServer(d.server, d.bridge)
		etcdserverpb.RegisterMaintenanceServer(d.server, d.bridge)
		// It ends by Stop, and returns no error of interest.
		safego.Go(&d.done, "serve the store", func() { _ = d.server.Serve(d.listener) }, nil)
	}
	return d.listener, nil
}

// recovering turns a panic of a handler into an error, because gRPC would let it end the process.
func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	err = safego.Call("answer the API server", func() (err error) {
		resp, err = handle(ctx, req)
		return err
	})
	return resp, err
}

// close closes all connections, and waits for their calls.
func (d *dialer) close() {
	d.mu.Lock()
	d.closed = true
	server := d.server
	d.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	d.done.Wait()
}

// DialContext connects to the store's etcd server in memory. It ignores network and address. It is the dialer in a
// storagebackend.TransportConfig, for those parts of the upstream API server that dial etcd themselves, such as the
// allocator of node ports. The connection supports everything that Client does, except watches, and lasts until the
// Store is closed.
func (s *Store) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := s.dialer.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("dial store: %w", err) // without the path, because tenants may read the error
	}
	return conn, nil
}
