// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine/sqlite"
)

// Errors of the disk can't be had from a real one at will.
func TestAnErrorOfTheDiskEndsTheServingOnlyIfWhatIsServedMayBeWrong(t *testing.T) {
	other := errors.New("other")
	cases := map[string]struct {
		reason string
		err    error
		shown  error
		bad    bool
	}{
		"None":  {"", nil, nil, false},
		"Other": {"It says nothing of the file.", other, other, false},
		"Full":  {"Space may be freed later.", sqlite3.Error{Code: sqlite3.ErrFull}, errNoSpace, false},
		"NoSpaceForTheIndex": {
			"The log's index is made anew with the first connection.",
			sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: unix.ENOSPC}, errNoSpace, false,
		},
		"Quota":    {"The same, by the owner's quota.", sqlite3.Error{Code: sqlite3.ErrIoErr, SystemErrno: unix.EDQUOT}, errNoSpace, false},
		"Canceled": {"The caller has gone.", sqlite3.Error{Code: sqlite3.ErrInterrupt}, context.Canceled, false},
		"Locked":   {"Whoever has it may let go.", sqlite3.Error{Code: sqlite3.ErrBusy}, errLocked, false},
		"Corrupt":  {"What was read so far may be wrong too (D1).", sqlite3.Error{Code: sqlite3.ErrCorrupt}, errOutOfOrder, true},
		"NotADB":   {"The first page is gone.", sqlite3.Error{Code: sqlite3.ErrNotADB}, errOutOfOrder, true},
		"Wrapped":  {"The check wraps its errors.", fmt.Errorf("check: %w", ErrDamaged), errOutOfOrder, true},
		"Sync": {
			"The next fsync may report success for pages that are lost (D1).",
			sqlite3.Error{Code: sqlite3.ErrIoErr, ExtendedCode: sqlite3.ErrIoErrFsync}, errUnconfirmed, true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHealth(sqlite.NewDatabase("state.db"), klog.Background())
			defer h.cancel()
			if shown := h.see(c.err); !errors.Is(shown, c.shown) {
				t.Errorf("client sees %v, want %v. %s", shown, c.shown, c.reason)
			}
			cause, shown := h.check()
			if (cause != nil) != c.bad || (h.bad.Err() != nil) != c.bad {
				t.Errorf("out of order because of %v, want %t. %s", cause, c.bad, c.reason)
			}
			if c.bad && !errors.Is(shown, c.shown) {
				t.Errorf("later calls see %v, want %v", shown, c.shown)
			}
		})
	}
}
