// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operations

import (
	"fmt"
	"sync"

	"github.com/berth-dev/berth/platform/spaceobjects"
)

// MostTransfers is how many stores are received from pods, or restored in them, at once. A pod that a tenant has taken over
// may need many minutes for its store, and a transfer holds one of the [spaceobjects.Reconcilers]: the others are left for
// all other spaces.
const MostTransfers = spaceobjects.Reconcilers / 4

// ErrTransfers is of a space whose store has to wait for those of others, and is moved once one of them is done.
var ErrTransfers = fmt.Errorf("the stores of %d other dedicated spaces are being transferred, which is the most at once", MostTransfers)

// Transfers bounds how many stores are transferred at once. The zero value is ready to use. It is safe for concurrent use.
type Transfers struct {
	mu sync.Mutex
	of map[string]struct{} // names of spaces
}

// Begin notes that the store of a space is transferred until end is called, or fails with ErrTransfers. It does not wait.
func (t *Transfers) Begin(space string) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) >= MostTransfers {
		return nil, ErrTransfers
	}
	if t.of == nil {
		t.of = map[string]struct{}{}
	}
	t.of[space] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.of, space)
	}, nil
}
