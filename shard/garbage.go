// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// gcPercent is GOGC of a process that runs spaces: those at rest make little
	// garbage, so that half of the usual room for it costs next to no time, and
	// memory is what bounds how many there can be.
	gcPercent = 50
	// ballast is memory that counts as used but that nobody touches, so that the
	// system never provides it. It gives a process gcPercent of it as room for
	// garbage, however few spaces it runs: a small heap would be collected all the
	// time while a space is busy.
	ballast = 128 << 20
)

// TuneGC sets this process's garbage collection up for running spaces, unless
// GOGC does. It holds until done is called.
func TuneGC() (done func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(gcPercent)
	room := make([]byte, ballast)
	return func() { runtime.KeepAlive(room) }
}
