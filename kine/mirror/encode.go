// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"encoding/binary"
	"fmt"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// The first byte of an encoded row is the version of the encoding.
const encodedRow, encodedDeletion = 1, 2

// Encode returns what a log stores of a row, except for its key.
func (r *Row) Encode() []byte {
	value := make([]byte, 0, 1+3*binary.MaxVarintLen64+len(r.Value))
	if r.Deleted {
		value = append(value, encodedDeletion)
	} else {
		value = append(value, encodedRow)
	}
	for _, n := range []int64{r.Revision, r.CreateRevision, r.Lease} {
		value = binary.AppendVarint(value, n)
	}
	if r.Deleted {
		return value // the value before
	}
	return append(value, r.Value...)
}

// Decode returns the row of a key. The revision must not be later than the last one.
func Decode(key string, value []byte, last int64) (r Row, err error) {
	wrong := fmt.Errorf("%w: the value of its key %.100q is not a row up to revision %d", sqlite.ErrDamaged, key, last)
	if len(value) == 0 || value[0] != encodedRow && value[0] != encodedDeletion {
		return Row{}, wrong
	}
	r.Key, r.Deleted, value = key, value[0] == encodedDeletion, value[1:]
	for _, into := range []*int64{&r.Revision, &r.CreateRevision, &r.Lease} {
		n, size := binary.Varint(value)
		if size <= 0 {
			return Row{}, wrong
		}
		*into, value = n, value[size:]
	}
	if r.Revision <= 0 || r.Revision > last {
		return Row{}, wrong
	}
	r.Value = value
	return r, nil
}

// Meta is the state of a log as it is stored, in JSON.
type Meta struct {
	Space      string `json:"space"`
	ID         string `json:"id"`
	Epoch      int64  `json:"epoch"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"`
	// FilesEpoch is that of the saved files; 0 if there are none. FilesSet is the number of their keys, and FilesParts how many
	// there are.
	FilesEpoch int64 `json:"filesEpoch,omitempty"`
	FilesSet   int64 `json:"filesSet,omitempty"`
	FilesParts int   `json:"filesParts,omitempty"`
}

// State returns the state.
func (m *Meta) State() State {
	return State{Owner: dbms.Owner{Space: m.Space, ID: m.ID}, Epoch: m.Epoch, Generation: m.Generation, Revision: m.Revision}
}

// CheckEpoch fails with an ErrFenced if the state is of another epoch than that of this process.
func (m *Meta) CheckEpoch(name string, own int64) error {
	if m.Epoch == own {
		return nil
	}
	return fmt.Errorf("%w: its epoch in %s is %d, and was %d when this process opened it", dbms.ErrFenced, name, m.Epoch, own)
}

// CheckExpected fails with an ErrFenced if the state is of another epoch than the one expected, if there is one.
func (m *Meta) CheckExpected(name string, expected *int64) error {
	if expected == nil || m.Epoch == *expected {
		return nil
	}
	return fmt.Errorf("%w: its epoch in %s is %d, and was %d before this process opened it", dbms.ErrFenced, name, m.Epoch, *expected)
}
