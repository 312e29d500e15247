// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"testing"
	"time"
)

// T8: who puts a space to sleep asks how long ago it was written to. To read does not count.
func TestAStoreIsQuietSinceItsLastWrite(t *testing.T) {
	s := openNew(t)
	defer closeStore(t, s)
	for _, key := range []string{"/a", "/b"} {
		before := time.Now()
		create(t, s, key, "1")
		after := time.Now()
		if got := value(t, s, key); got != "1" {
			t.Errorf("%s is %q", key, got)
		}
		least := time.Since(after)
		if quiet := s.Quiet(); quiet < least || quiet > time.Since(before) {
			t.Errorf("quiet for %s, want %s to %s", quiet, least, time.Since(before))
		}
	}
}
