// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/spaceobjects"
)

// mostTransfers is how many stores are received from pods, or restored in them, at once. A pod that a tenant has taken over
// may need many minutes for its store, and a transfer holds one of the [spaceobjects.Reconcilers]: the others are left for
// all other spaces.
const mostTransfers = spaceobjects.Reconcilers / 4

// errTransfers is of a space whose store has to wait for those of others.
var errTransfers = fmt.Errorf("the stores of %d other dedicated spaces are being transferred, which is the most at once", mostTransfers)

// transfers bounds how many stores are transferred at once. The zero value is ready to use. It is safe for concurrent use.
type transfers struct{ running atomic.Int32 }

// begin notes that a store is transferred until end is called, or fails with errTransfers. It does not wait.
func (t *transfers) begin() (end func(), err error) {
	if t.running.Add(1) > mostTransfers {
		t.running.Add(-1)
		return nil, errTransfers
	}
	return func() { t.running.Add(-1) }, nil
}

// errGivenUp ends the transfer of a store that nobody wants any more.
var errGivenUp = errors.New("spec.deletionPolicy is Delete now")

// untilGivenUp returns a context that ends when the policy of a space's object becomes Delete, so that a store that its pod
// doesn't hand out can be given up. Call stop once the transfer has ended.
func (m *Manager) untilGivenUp(ctx context.Context, name string) (transfer context.Context, stop func()) {
	transfer, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	safego.Go(&watch, "watch the deletion policy of a space", func() {
		_ = wait.PollUntilContextCancel(transfer, busyRetry, true, func(context.Context) (bool, error) {
			object := m.objects.Get(name)
			if object == nil || object.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
				return false, nil
			}
			cancel(errGivenUp)
			return true, nil
		})
	}, nil)
	return transfer, func() {
		cancel(nil)
		watch.Wait()
	}
}
