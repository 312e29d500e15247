// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refile reads files of the platform's admin again when they change. While a file can't be read, or is wrong, what was read before
// holds: a caller replaces what it has only once it has parsed the file.
package refile

import (
	"context"
	"fmt"
	"os"
	"time"
)

// every is how often it is checked whether a file has changed.
const every = time.Second

// File is a file that may change. It is not safe for concurrent use.
type File struct {
	// Path is the file, and MaxBytes limits its size. Remedy says what the admin can do about a larger one.
	Path     string
	MaxBytes int64
	Remedy   string
	// Parse takes over the contents, or returns why they are wrong.
	Parse func(data []byte) error

	parsed version
	err    error // of that version
}

// version tells versions of a file apart.
type version struct {
	size     int64
	modified time.Time
}

// Read parses the file if it has changed since it was parsed, and reports whether Parse has taken it over. A version that Parse refuses is
// parsed once, and its error is returned until the file changes; one that can't be read is read again.
func (f *File) Read() (changed bool, err error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return false, err
	}
	now := version{info.Size(), info.ModTime()}
	if now == f.parsed {
		return false, f.err
	}
	if info.Size() > f.MaxBytes {
		return false, fmt.Errorf("it has %d bytes, and may have %d; %s", info.Size(), f.MaxBytes, f.Remedy)
	}
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return false, err
	}
	f.parsed, f.err = now, f.Parse(data)
	return f.err == nil, f.err
}

// Follow reads the file again when it changes, until ctx ends. It calls changed after each version that Parse has taken over, and failed
// with each error once.
func (f *File) Follow(ctx context.Context, changed func(), failed func(error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		is, err := f.Read()
		switch {
		case err == nil:
			reported = ""
		case err.Error() != reported:
			reported = err.Error()
			failed(err)
		}
		if is {
			changed()
		}
	}
}
