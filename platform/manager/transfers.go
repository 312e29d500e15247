// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/spaceobjects"
)

// mostTransfers is how many stores are received from pods, or restored in them, at once. A pod that a tenant has taken over
// may need many minutes for its store, and a transfer holds one of the [spaceobjects.Reconcilers]: the others are left for
// all other spaces.
const mostTransfers = spaceobjects.Reconcilers / 4

// errTransfers is of a space whose store has to wait for those of others, and is moved once one of them is done.
var errTransfers = fmt.Errorf("the stores of %d other dedicated spaces are being transferred, which is the most at once", mostTransfers)

// transfers bounds how many stores are transferred at once. The zero value is ready to use. It is safe for concurrent use.
type transfers struct {
	mu sync.Mutex
	of map[string]struct{} // names of spaces
}

// begin notes that the store of a space is transferred until end is called, or fails with errTransfers. It does not wait.
func (t *transfers) begin(space string) (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) >= mostTransfers {
		return nil, errTransfers
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

// errGivenUp ends the transfer of a store that nobody wants any more.
var errGivenUp = errors.New("the store isn't wanted any more")

// givenUp reports whether the store of a space that is being deleted is to be deleted, too. object is nil if it was removed
// by force, so that nobody can say. One that isn't being deleted was created since, and is of a space that comes later.
func givenUp(object *v1alpha1.Space) bool {
	return object != nil && !object.DeletionTimestamp.IsZero() && object.Spec.DeletionPolicy == v1alpha1.DeletionDelete
}

// stays reports whether a space that moves to the shared process is to stay in its pod after all, because its spec says so or the
// admin trusts its pod no more, or is to be deleted.
func (m *Manager) stays(object *v1alpha1.Space) bool {
	if object == nil || !object.DeletionTimestamp.IsZero() {
		return true
	}
	want, _, _ := m.want(object)
	return want != nil && want.Spec.Isolation == v1alpha1.Dedicated || errors.Is(m.checkTrust(object), errUntrusted)
}

// whileWanted returns a context for the transfer of a space's store, which ends when unwanted reports true of its object: a pod
// may not hand out the store. Call stop once the transfer has ended.
func (m *Manager) whileWanted(ctx context.Context, name string, unwanted func(*v1alpha1.Space) bool) (transfer context.Context, stop func()) {
	transfer, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	safego.Go(&watch, "watch whether the store of a space is wanted", func() {
		_ = wait.PollUntilContextCancel(transfer, busyRetry, true, func(context.Context) (bool, error) {
			if !unwanted(m.objects.Get(name)) {
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

// failedMoves are the spaces whose stores could not be moved from their pods. Each attempt stops the space for a while, so that
// the pauses between them grow. The zero value is ready to use. It is safe for concurrent use.
type failedMoves struct {
	mu sync.Mutex
	of map[string]*failedMove
}

type failedMove struct {
	of    wish // with which it was tried
	err   error
	after time.Time
	pause wait.Backoff
}

// check returns the error of the last attempt if it is too early for the next one. A new spec, or the trust of the admin,
// may be the remedy, so that it is tried at once.
func (f *failedMoves) check(object *v1alpha1.Space) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.of[object.Name]
	if failed == nil || failed.of != wishOf(object) || !time.Now().Before(failed.after) {
		return nil
	}
	return fmt.Errorf("%w; Berth tries again at %s, or when its spec changes", failed.err, failed.after.UTC().Format(time.TimeOnly+" MST"))
}

// note records that an attempt has failed.
func (f *failedMoves) note(object *v1alpha1.Space, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*failedMove{}
	}
	failed := f.of[object.Name]
	if failed == nil || failed.of != wishOf(object) {
		failed = &failedMove{of: wishOf(object), pause: wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: math.MaxInt32, Cap: 30 * time.Minute}}
		f.of[object.Name] = failed
	}
	failed.err, failed.after = err, time.Now().Add(failed.pause.Step())
}

func (f *failedMoves) forget(space string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, space)
}

// wish is what an admin says of a space that may make a move succeed.
type wish struct {
	uid        types.UID
	generation int64
	trusted    bool
}

func wishOf(object *v1alpha1.Space) wish {
	return wish{object.UID, object.Generation, trusted(object)}
}
