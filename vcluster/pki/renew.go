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
)

// An authority's life, in fractions of it. The next one is published for as
// long as a client's certificate lives before it signs anything: whoever still
// has a certificate that is good by then got the next authority with it. The
// old one is trusted until it ends, by when all that it signed has ended.
const (
	caLifetime = 10 * 365 * 24 * time.Hour
	publish    = 0.7
	succeed    = publish + float64(clientLifetime)/float64(caLifetime)
)

// after is the time at which a fraction of a certificate's life has passed.
func after(fraction float64, c *x509.Certificate) time.Time {
	return c.NotBefore.Add(time.Duration(fraction * float64(c.NotAfter.Sub(c.NotBefore))))
}

func (a *authority) duePublish(now time.Time) bool {
	return a.next == nil && !now.Before(after(publish, a.cert))
}

func (a *authority) dueSucceed(now time.Time) bool {
	return a.next != nil && !now.Before(after(succeed, a.cert))
}

// live are the certificates that are still good for something.
func (a *authority) live(now time.Time) []*x509.Certificate {
	return slices.DeleteFunc(slices.Clone(a.trusted), func(c *x509.Certificate) bool { return c != a.cert && now.After(c.NotAfter) })
}

// due tells whether there is something to renew.
func (a *authority) due(now time.Time) bool {
	return a.duePublish(now) || a.dueSucceed(now) || len(a.live(now)) < len(a.trusted)
}

// renew does what is due. On error all is as it was. The caller holds mu.
func (ca *CA) renew() error {
	now := ca.clock.Now()
	if !ca.due(now) {
		return nil
	}
	lock, err := os.OpenFile(filepath.Join(ca.dir, "ca.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("renew certificate authority: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("renew certificate authority: lock %s: %w", lock.Name(), err)
	}
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
		return syncDir(ca.dir)
	default:
		return ca.writeTrusted(ca.live(now))
	}
}
