// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

const (
	// connectTimeout limits how long a client logs in.
	connectTimeout = 5 * time.Second
	// firstPause is the pause before the second attempt to connect.
	firstPause = 100 * time.Millisecond
	// callTimeout limits a call to the server.
	callTimeout = 10 * time.Second
	// keepAlive is how often an unresponsive connection is examined, and keepAliveTimeout how long it may take to respond then.
	keepAlive, keepAliveTimeout = 10 * time.Second, 5 * time.Second
	// tries is how often a call is made that the server has rejected because of an old token, and one that only reads if the
	// server was unreachable.
	tries = 3
	// maxRequest and maxResponse are the largest messages.
	maxRequest, maxResponse = 2 << 20, 32 << 20
)

// client returns the client, and connects if it isn't connected.
func (l *Log) client() (*clientv3.Client, error) {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	if l.closed {
		return nil, &lostError{errors.New("it is closed")}
	}
	if l.connected != nil {
		return l.connected, nil
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: l.target.endpoints, Username: l.target.User, Password: l.target.Password, TLS: l.target.tls,
		DialTimeout: connectTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		MaxUnaryRetries: tries, MaxCallRecvMsgSize: maxResponse, MaxCallSendMsgSize: maxRequest,
		Logger: zap.NewNop(), // it would write to the process's standard error
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectTimeout},
			MinConnectTimeout: connectTimeout,
		})},
	})
	if err != nil {
		return nil, &callError{fmt.Errorf("connect: %w", err)}
	}
	l.connected = c
	return c, nil
}

// failFast has a call fail when the server can't be reached. etcd's client would wait until the call's context ends.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// Release closes the connection until the next use.
func (l *Log) Release() error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	return l.disconnect()
}

// Close closes the connection. The log can't be used afterwards.
func (l *Log) Close() error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.closed = true
	return l.disconnect()
}

func (l *Log) disconnect() error {
	c := l.connected
	l.connected = nil
	if c == nil {
		return nil
	}
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) { // its context has ended
		return err
	}
	return nil
}

// callError is an error of a call to etcd. Others with a code of gRPC are not of etcd.
type callError struct{ err error }

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// lostError makes an error a Lost one.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// Fault classifies an error of etcd.
func (l *Log) Fault(err error) dbms.Fault {
	var lost *lostError
	if errors.As(err, &lost) {
		return dbms.Lost
	}
	if errors.Is(err, mirror.ErrTooLarge) {
		return dbms.TooLarge
	}
	var call *callError
	if !errors.As(err, &call) {
		return dbms.None
	}
	code, message := codeOf(err)
	switch {
	case message == rpctypes.ErrNoSpace.Error():
		return dbms.Full
	case message == rpctypes.ErrRequestTooLarge.Error():
		return dbms.TooLarge
	case rejected(code):
		return dbms.Failed
	}
	return dbms.Lost
}

// codeOf returns the code and the message of an error of etcd.
func codeOf(err error) (code codes.Code, message string) {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code(), e.Error()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code(), s.GRPCStatus().Message()
	}
	return codes.Unknown, ""
}

// rejected reports whether a call with this code surely has had no effect.
func rejected(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.ResourceExhausted, codes.Unimplemented,
		codes.OutOfRange, codes.NotFound:
		return true
	default:
		return false
	}
}
