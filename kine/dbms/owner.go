// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dbms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrOtherSpace means that the database belongs to another space.
var ErrOtherSpace = errors.New("the database belongs to another space")

// Owner is the space that a database in a server belongs to.
type Owner struct {
	Space string // its name
	ID    string // of its store; another space of the same name has another one
}

// CheckIs fails with an ErrOtherSpace if the owner of a database is not the given one.
func (o Owner) CheckIs(by Owner) error {
	if o == by {
		return nil
	}
	return fmt.Errorf("%w: it is that of space %q (%s), and this is space %q (%s); use a database of its own for each space",
		ErrOtherSpace, o.Space, o.ID, by.Space, by.ID)
}

const (
	// MaxFiles is how many bytes the files of a space may have in all.
	MaxFiles = 4 << 20
	// MaxFileCount is how many files a space may have.
	MaxFileCount = 4096
)

// Files are what a process keeps of a space beside its store, such as keys, so that another process can serve the space.
type Files struct {
	// Epoch is the epoch of the process that last changed them. It is 0 if there are none yet.
	Epoch int64
	// Data is the contents by name.
	Data map[string][]byte
}

// CheckSize fails if files are too large to be saved.
func CheckSize(data map[string][]byte) error {
	size := 0
	for name, content := range data {
		size += len(name) + len(content)
	}
	if size > MaxFiles {
		return fmt.Errorf("the files of the space have %d bytes, and may have %d", size, MaxFiles)
	}
	return nil
}

// errNotFiles is of a text that SaveFiles doesn't write.
var errNotFiles = errors.New("the files of the space are not JSON")

// DecodeFiles returns files that were encoded as JSON. Somebody else may have written the text, so it fails as soon as there are too many
// files: in memory, a small one takes ten times as much as in the text.
func DecodeFiles(text []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	if err == nil && start == nil {
		return files, nil // there are none
	}
	if start != json.Delim('{') {
		return nil, errNotFiles
	}
	for decoder.More() {
		if len(files) == MaxFileCount {
			return nil, fmt.Errorf("the space has more than %d files", MaxFileCount)
		}
		name, err := decoder.Token()
		if err != nil {
			return nil, errNotFiles
		}
		var data []byte
		if decoder.Decode(&data) != nil {
			return nil, errNotFiles
		}
		files[fmt.Sprint(name)] = data
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errNotFiles
	}
	return files, nil
}
