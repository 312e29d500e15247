// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mattn/go-sqlite3"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine/sqlite"
)

// These are the errors that an etcd client gets. A tenant may read them, so they reveal nothing about the machine.
var (
	errListTooLarge = status.Errorf(codes.ResourceExhausted, "etcdserver: a list holds more than %d MiB, ask for it in pages", listBytes>>20)
	errClosed       = rpctypes.ErrGRPCStopped
	errNoSpace      = rpctypes.ErrGRPCNoSpace
	errOutOfOrder   = status.Error(codes.DataLoss, "etcdserver: the space's store is damaged and serves nothing until it is restored")
	errLocked       = status.Error(codes.Unavailable, "etcdserver: the file of the space's store is locked by another process")
	errUnconfirmed  = status.Error(codes.Unavailable, "etcdserver: the disk of the space's store fails to confirm writes")
)

// health records whether the store may be served. After a fatal error, it may not until it is opened again.
type health struct {
	path string
	log  klog.Logger
	// bad is canceled by a fatal error.
	bad    context.Context
	cancel context.CancelFunc
	full   atomic.Bool // the last write failed because the disk was full

	mu    sync.Mutex
	cause error // for the owner and the log
	shown error // for etcd clients
}

func newHealth(path string, log klog.Logger) *health {
	h := &health{path: path, log: log}
	h.bad, h.cancel = context.WithCancel(context.Background())
	return h
}

// see records an error, if there is one, and returns the error for the client.
func (h *health) see(err error) error {
	var e sqlite3.Error
	switch {
	case errors.Is(err, ErrDamaged):
		return h.fail(err, errOutOfOrder)
	case !errors.As(err, &e):
		return err
	case e.Code == sqlite3.ErrInterrupt:
		return context.Canceled
	case e.Code == sqlite3.ErrFull, e.ExtendedCode != sqlite3.ErrIoErrFsync && (e.SystemErrno == unix.EDQUOT || e.SystemErrno == unix.ENOSPC):
		if !h.full.Swap(true) {
			h.log.Error(err, "Disk is full; the store rejects writes until the disk has free space", "path", h.path)
		}
		return errNoSpace
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return h.fail(sqlite.AsDamage(err), errOutOfOrder)
	case e.ExtendedCode == sqlite3.ErrIoErrFsync, e.ExtendedCode == sqlite3.ErrIoErrDirFsync:
		// After a failed fsync, the kernel may report the next one as successful without having written the data. Only
		// reading the file again shows what it contains.
		return h.fail(fmt.Errorf("%w; check the disk, then open the store again", err), errUnconfirmed)
	}
	h.log.Error(err, "Could not read or write the store", "path", h.path)
	if e.Code == sqlite3.ErrBusy {
		return errLocked
	}
	return err
}

// written records a successful write.
func (h *health) written() {
	if h.full.Load() && h.full.Swap(false) {
		h.log.Info("Disk has free space again; the store accepts writes", "path", h.path)
	}
}

func (h *health) fail(cause, shown error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause, h.shown = cause, shown
		h.log.Error(cause, "Store rejects all requests until it is opened again", "path", h.path)
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
