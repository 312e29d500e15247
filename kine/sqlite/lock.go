// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockSuffix names the file beside a store that is locked while the store is open. The store itself can't serve for
// that: SQLite keeps POSIX locks on it, and those vanish as soon as any descriptor of the file is closed in the process.
const lockSuffix = ".lock"

// Take takes the store at path for this Store alone, or says that it is in use. The kernel drops the lock with the
// process, so a kill leaves nothing to clean up. The lock file stays behind: unlinking it would let two holders in.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%w: close the space, or stop the process, that has it open", ErrInUse)
	default:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil, errors.Join(err, f.Close())
}
