// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/segment"
)

const (
	// rowsPerSecond is how many bytes of rows are taken from another process per second, after the first segment of any size.
	rowsPerSecond = 4 << 20
	// openings is how often another process may open its store at once, and openEvery how often after that: each opening may cost a few requests
	// to the bucket.
	openings, openEvery = 5, 10 * time.Second
	// overdueBytes is how many bytes of rows there may be after a base of another process, and four times the size of the base.
	overdueBytes = 512 << 20
)

// errProcess means that the process with the store doesn't answer, or not as it should, which says nothing about the bucket.
var errProcess = errors.New("ask the process of the space")

// errOverdue means that nothing more is uploaded before another base is complete.
var errOverdue = fmt.Errorf("%w for a copy of its store, which it hasn't sent", errProcess)

// Remote reaches the store of a space in its own process, which a tenant may have taken over. Its methods limit the time and the memory that
// they take, and may be called concurrently.
type Remote interface {
	// Watch and Rows are those of [feed.Client].
	Watch(ctx context.Context, seen feed.Seen) (feed.State, error)
	Rows(ctx context.Context, opening uint64, after int64, most int) ([]byte, error)
	// Copy writes a copy of the store to path, where no file may exist, and returns what the process says of its last row: the revision, and the
	// digest. It fails if that opening of the store isn't the current one. It reserves the space on the disk until it returns.
	Copy(ctx context.Context, opening uint64, path string) (revision int64, row string, err error)
}

// remote is the open store of another process.
type remote struct {
	from    Remote
	codec   *segment.Codec
	opening uint64
	foreign bool // the process is on another machine
	limit   *rate.Limiter

	mu    sync.Mutex
	state feed.State
	told  int // how often the process has said what its state is
}

var _ source = &remote{}

func (r *remote) elsewhere() bool { return true }

// isForeign reports whether a store is on another machine.
func isForeign(s source) bool {
	r, is := s.(*remote)
	return is && r.foreign
}

// set notes what the process says.
func (r *remote) set(state feed.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
	r.told++
}

func (r *remote) Last() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Last
}

func (r *remote) CompactRevision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Compacted
}

func (r *remote) RowsAfter(ctx context.Context, after int64, most int) ([]sqlite.Row, error) {
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	if err := r.limit.Wait(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errProcess, err)
	}
	object, err := r.from.Rows(ctx, r.opening, after, most)
	r.limit.ReserveN(time.Now(), min(len(object), r.limit.Burst())) // whatever is in it
	if errors.Is(err, kine.ErrRowsGone) {
		return nil, err
	}
	var rows []sqlite.Row
	if err == nil && len(object) > 0 {
		_, rows, err = r.codec.Decode(object)
	}
	if err == nil && len(rows) > 0 && rows[0].ID != after+1 {
		err = fmt.Errorf("it sends rows from revision %d instead of %d", rows[0].ID, after+1)
	}
	if err != nil {
		return nil, fmt.Errorf("%w for rows after revision %d: %w", errProcess, after, err)
	}
	end, size := after, 0
	for i := range rows {
		end, size = rows[i].ID, size+rows[i].Size()
	}
	r.limit.ReserveN(time.Now(), min(max(size-len(object), 0), r.limit.Burst()))
	r.mu.Lock()
	defer r.mu.Unlock()
	if size < most && told == r.told { // so there is nothing after them, whatever it has said before
		r.state.Last = end
	}
	return rows, nil
}

var digest = regexp.MustCompile(`^[0-9a-f]{16}$`)

func (r *remote) copyTo(ctx context.Context, path string) (copied snapshot.Copied, end func(), err error) {
	revision, row, err := r.from.Copy(ctx, r.opening, path)
	if err == nil && (revision <= 0 || revision >= feed.NoLimit || !digest.MatchString(row)) {
		err = fmt.Errorf("it says that the copy ends with revision %d", revision)
	}
	if err != nil {
		return copied, nil, fmt.Errorf("%w: %w", errProcess, err)
	}
	return snapshot.Copied{Path: path, Revision: revision, Row: row, Elsewhere: r.foreign}, func() {}, nil
}
