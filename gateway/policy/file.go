// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/gateway/resolve"
)

const (
	// lookAgain is how often it is looked whether the file has changed.
	lookAgain = time.Second
	// maxFile limits the file, in bytes.
	maxFile = 4 << 20
)

// File is the policies of a file. A nil *File has none. It is safe for concurrent use.
type File struct {
	path   string
	logger klog.Logger

	wrong    stamp // of a version with an error
	wrongErr error

	mu     sync.Mutex
	read   stamp
	grants map[string]*access.Set // by space; those for all spaces are of "*"
}

// stamp tells versions of a file apart.
type stamp struct {
	size     int64
	modified time.Time
}

// Open reads a file; there is none if path is empty.
func Open(path string, logger klog.Logger) (*File, error) {
	if path == "" {
		return nil, nil
	}
	f := &File{path: path, logger: logger}
	_, err := f.readAgain()
	return f, err
}

// Granted returns what the policies allow in a space. All spaces share what is for all.
func (f *File) Granted(space string) (granted []*access.Set) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range []string{space, all} {
		if set := f.grants[key]; set != nil && (key == space || space != resolve.System) {
			granted = append(granted, set)
		}
	}
	return granted
}

// Run reads the file again when it changes, and then calls changed, until ctx ends. While the file can't be read, or has an error, what was
// read last holds.
func (f *File) Run(ctx context.Context, changed func()) {
	if f == nil {
		return
	}
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	said := ""
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		is, err := f.readAgain()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			f.logger.Error(err, "Could not read the authorization policy again; what was read before holds", "file", f.path)
		}
		if is {
			changed()
		}
	}
}

// readAgain reads the file if it has changed, and reports whether it has other policies.
func (f *File) readAgain() (changed bool, err error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return false, err
	}
	is := stamp{info.Size(), info.ModTime()}
	switch is {
	case f.read:
		return false, nil
	case f.wrong:
		return false, f.wrongErr // it has another size or time once it is right
	}
	if info.Size() > maxFile {
		return false, fmt.Errorf("it has %d bytes, and may have %d; name groups instead of users", info.Size(), maxFile)
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false, err
	}
	parsed, err := parse(data)
	if err != nil {
		f.wrong, f.wrongErr = is, err
		return false, err
	}
	grants := setsOf(parsed)
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = !maps.EqualFunc(f.grants, grants, (*access.Set).Equal)
	f.read, f.grants = is, grants
	return changed, nil
}

func setsOf(grants map[string][]access.Grant) map[string]*access.Set {
	sets := map[string]*access.Set{}
	for space, all := range grants {
		sets[space] = access.NewSet(all)
	}
	return sets
}
