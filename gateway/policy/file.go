// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"maps"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/internal/refile"
)

// maxFile limits the file, in bytes.
const maxFile = 4 << 20

// File is the policies of a file. A nil *File has none. It is safe for concurrent use.
type File struct {
	file   refile.File
	logger klog.Logger
	grants atomic.Pointer[map[string]*access.Set] // by space; those for all spaces are of "*"
}

// Open reads a file; there is none if path is empty.
func Open(path string, logger klog.Logger) (*File, error) {
	if path == "" {
		return nil, nil
	}
	f := &File{logger: logger}
	f.file = refile.File{Path: path, MaxBytes: maxFile, Remedy: "name groups instead of users", Parse: func(data []byte) error {
		parsed, err := parse(data)
		if err == nil {
			sets := setsOf(parsed)
			f.grants.Store(&sets)
		}
		return err
	}}
	_, err := f.file.Read()
	return f, err
}

// Granted returns what the policies allow in a space. All spaces share what is for all.
func (f *File) Granted(space string) (granted []*access.Set) {
	if f == nil {
		return nil
	}
	grants := *f.grants.Load()
	for _, key := range []string{space, all} {
		if set := grants[key]; set != nil && (key == space || space != resolve.System) {
			granted = append(granted, set)
		}
	}
	return granted
}

// Run reads the file again when it changes, and calls changed if it has other policies, until ctx ends. While the file can't be read, or has
// an error, what was read last holds.
func (f *File) Run(ctx context.Context, changed func()) {
	if f == nil {
		return
	}
	before := *f.grants.Load()
	f.file.Follow(ctx, func() {
		if now := *f.grants.Load(); !maps.EqualFunc(before, now, (*access.Set).Equal) {
			before = now
			changed()
		}
	}, func(err error) {
		f.logger.Error(err, "Could not read the authorization policy again; what was read before holds", "file", f.file.Path)
	})
}

func setsOf(grants map[string][]access.Grant) map[string]*access.Set {
	sets := map[string]*access.Set{}
	for space, all := range grants {
		sets[space] = access.NewSet(all)
	}
	return sets
}
