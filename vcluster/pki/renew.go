// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/fsutil"
)

// An authority's life, in fractions of it. The next one is published for a year, which is far longer than a client's
// certificate lives, before it signs anything: whoever still has a certificate that is good by then got the next
// authority with it. The old one is trusted until it ends, by when all that it signed has ended.
const (
	caLifetime = 10 * 365 * 24 * time.Hour
	publish    = 0.7
	succeed    = 0.8
)

// after is the time at which a fraction of a certificate's life has passed.
func after(fraction float64, c *x509.Certificate) time.Time {
	return c.NotBefore.Add(time.Duration(fraction * float64(c.NotAfter.Sub(c.NotBefore))))
}

func (a *authority) duePublish(now time.Time) bool {
	if a.isRevoked(a.cert) {
		return a.next == nil || a.isRevoked(a.next)
	}
	return a.next == nil && !now.Before(after(publish, a.cert))
}

func (a *authority) dueSucceed(now time.Time) bool {
	return a.next != nil && !a.isRevoked(a.next) && (a.isRevoked(a.cert) || !now.Before(after(succeed, a.cert)))
}

// live are the certificates to keep: those that are still good for something, and the one that signs.
func (a *authority) live(now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a.kept), func(c *x509.Certificate) bool { return c != a.cert && (now.After(c.NotAfter) || a.isRevoked(c)) })
}

// due tells whether there is something to renew.
func (a *authority) due(now time.Time) bool {
	return len(a.revoked) > 0 || a.duePublish(now) || a.dueSucceed(now) || len(a.live(now)) < len(a.kept)
}

// renew does what is due. On error all is as it was. The caller holds mu.
func (ca *CA) renew() error {
	now := ca.clock.Now()
	if !ca.due(now) {
		return nil
	}
	unlock, err := lockKeys(ca.dir)
	if err != nil {
		return fmt.Errorf("renew certificate authority: %w", err)
	}
	defer unlock()
	return ca.renewLocked(now)
}

func (ca *CA) renewLocked(now time.Time) error {
	for {
		// Another may have done it meanwhile.
		if err := ca.load(); err != nil || !ca.due(now) {
			return err
		}
		if err := ca.step(now); err != nil {
			return fmt.Errorf("renew certificate authority: %w", err)
		}
	}
}

// lockKeys keeps others, in this process and in others, from changing the keys in dir until unlock is called.
func lockKeys(dir string) (unlock func(), err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "ca.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return func() { _ = lock.Close() }, nil
}

// step does one thing that is due. A crash at any point leaves files that load.
func (ca *CA) step(now time.Time) error {
	switch {
	case ca.duePublish(now):
		key, cert, err := newAuthority(ca.name, now)
		if err != nil {
			return err
		}
		return ca.write("ca-next.key", key, append(ca.live(now), cert))
	case ca.dueSucceed(now):
		if err := os.Rename(filepath.Join(ca.dir, "ca-next.key"), filepath.Join(ca.dir, "ca.key")); err != nil {
			return err
		}
		return fsutil.SyncDir(ca.dir)
	case len(ca.live(now)) < len(ca.kept):
		return ca.writeKept(ca.live(now))
	default: // nothing is left of what is revoked
		if err := os.Remove(filepath.Join(ca.dir, revokedFile)); err != nil {
			return err
		}
		return fsutil.SyncDir(ca.dir)
	}
}
