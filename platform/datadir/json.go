// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-dev/berth/vcluster/pki"
)

// ReadJSON reads a small file of the platform's own; nil if there is none.
func ReadJSON[T any](path string) (*T, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := new(T)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return value, nil
}

// WriteJSON writes such a file, which is on disk when it returns.
func WriteJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return pki.WriteFile(path, data)
}
