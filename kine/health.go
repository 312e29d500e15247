// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// These are the errors that an etcd client gets. A tenant may read them, so they reveal nothing about the machine.
var (
	errListTooLarge = status.Errorf(codes.ResourceExhausted, "etcdserver: a list holds more than %d MiB, ask for it in pages", listBytes>>20)
	errClosed       = rpctypes.ErrGRPCStopped
	errNoSpace      = rpctypes.ErrGRPCNoSpace
	errOutOfOrder   = status.Error(codes.DataLoss, "etcdserver: the space's store is damaged and serves nothing until it is restored")
	errLocked       = status.Error(codes.Unavailable, "etcdserver: the space's store is locked by another process")
	errUnreachable  = status.Error(codes.Unavailable, "etcdserver: the database of the space's store is unreachable")
	errFenced       = status.Error(codes.Unavailable, "etcdserver: another process has opened the space's store")
	errTooLong      = status.Error(codes.InvalidArgument, "etcdserver: the key or value is longer than the database of the space's store can have")
	errUnconfirmed  = status.Error(codes.Unavailable, "etcdserver: the disk of the space's store fails to confirm writes")
)

// health records whether the store may be served. After a fatal error, it may not until it is opened again.
type health struct {
	db  database
	log klog.Logger
	// bad is canceled by a fatal error.
	bad    context.Context
	cancel context.CancelFunc
	full   atomic.Bool // the last write failed because the disk was full
	lost   atomic.Bool // the database was unreachable when it was last used

	mu    sync.Mutex
	cause error // for the owner and the log
	shown error // for etcd clients
}

func newHealth(db database, log klog.Logger) *health {
	h := &health{db: db, log: log}
	h.bad, h.cancel = context.WithCancel(context.Background())
	return h
}

// see records an error, if there is one, and returns the error for the client.
func (h *health) see(err error) error {
	switch fault := h.db.Fault(err); fault {
	case dbms.None:
		return err
	case dbms.Interrupted:
		return context.Canceled
	case dbms.Full:
		if !h.full.Swap(true) {
			h.log.Error(err, "Disk is full; the store rejects writes until the disk has free space", "path", h.db.String())
		}
		return errNoSpace
	case dbms.Damaged:
		return h.fail(sqlite.AsDamage(err), errOutOfOrder)
	case dbms.Unconfirmed:
		// After a failed fsync, the kernel may report the next one as successful without having written the data. Only
		// reading the file again shows what it contains.
		return h.fail(fmt.Errorf("%w; check the disk, then open the store again", err), errUnconfirmed)
	case dbms.Lost:
		if !h.lost.Swap(true) {
			h.log.Error(err, "Database is unreachable; the store fails requests until it is reachable again", "path", h.db.String())
		}
		return errUnreachable
	case dbms.Fenced:
		return h.fail(err, errFenced)
	case dbms.TooLarge:
		return errTooLong
	default:
		h.log.Error(err, "Could not read or write the store", "path", h.db.String())
		if fault == dbms.Busy {
			return errLocked
		}
		return err
	}
}

// reached records that the database responds.
func (h *health) reached() {
	if h.lost.Load() && h.lost.Swap(false) {
		h.log.Info("Database is reachable again; the store accepts requests", "path", h.db.String())
	}
}

// written records a successful write.
func (h *health) written() {
	h.reached()
	if h.full.Load() && h.full.Swap(false) {
		h.log.Info("Disk has free space again; the store accepts writes", "path", h.db.String())
	}
}

func (h *health) fail(cause, shown error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause, h.shown = cause, shown
		h.log.Error(cause, "Store rejects all requests until it is opened again", "path", h.db.String())
		h.cancel()
	}
	return h.shown
}

// check returns why the store may not be served: one error for its owner, and one for clients.
func (h *health) check() (cause, shown error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause, h.shown
}

// fenceInterval is how long a store in a server that is used may have been taken over without noticing it. Writes and new connections
// notice it by themselves.
const fenceInterval = time.Second

// fence checks once in a while that nobody has taken over a store that is used. While the store isn't used, no timer runs.
type fence struct {
	check  func(context.Context) error // nil for a file
	health *health
	ctx    context.Context // ends with the store

	set     atomic.Bool
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	running sync.WaitGroup
}

// touch records a call.
func (f *fence) touch() {
	if f == nil || f.set.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.set.Swap(true) {
		return
	}
	if f.timer == nil {
		f.timer = safego.AfterFunc(fenceInterval, "check who has the store", f.look)
		return
	}
	f.timer.Reset(fenceInterval)
}

func (f *fence) look() {
	f.mu.Lock()
	if f.stopped {
		f.mu.Unlock()
		return
	}
	f.running.Add(1)
	f.mu.Unlock()
	defer f.running.Done()
	ctx, cancel := context.WithTimeout(f.ctx, connectLimit)
	defer cancel()
	err := f.check(ctx)
	f.set.Store(false)
	if f.health.db.Fault(err) == dbms.Fenced { // others are for those who use the store
		_ = f.health.see(err)
	}
}

func (f *fence) stop() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.stopped = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}
