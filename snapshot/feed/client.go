// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot/segment"
)

const (
	// answerTime is how long a process may take to answer after [Wait].
	answerTime = 5 * time.Second
	// rowsTimeout limits the request for a segment.
	rowsTimeout = 10 * time.Second
)

// Client asks a process for its store. It is safe for concurrent use.
type Client struct{ commands *control.Client }

// NewClient returns a client of a process that takes commands.
func NewClient(commands *control.Client) Client { return Client{commands} }

// Watch returns the state of the store when it differs from what was seen, or after a while.
func (c Client) Watch(ctx context.Context, seen Seen) (state State, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Wait+answerTime, fmt.Errorf("no answer within %s", Wait+answerTime))
	defer cancel()
	if err := c.commands.Do(ctx, http.MethodGet, statePath+"?"+seen.query().Encode(), &state); err != nil {
		return State{}, withCause(ctx, err)
	}
	// Bounds that no store reaches, so that sums don't overflow.
	if state.Last < 0 || state.Last >= NoLimit || state.Compacted < 0 || state.Compacted > state.Last {
		return State{}, fmt.Errorf("the process says that its store has revision %d, and is compacted up to %d", state.Last, state.Compacted)
	}
	return state, nil
}

// Rows returns a segment of the rows after a revision, which is not checked; nothing if there are none. It is at most as long as a segment can be,
// and arrives within seconds. It fails with [kine.ErrRowsGone] if some of the rows are gone.
func (c Client) Rows(ctx context.Context, opening uint64, after int64, most int) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rowsTimeout, fmt.Errorf("not done within %s", rowsTimeout))
	defer cancel()
	query := url.Values{"opening": {strconv.FormatUint(opening, 10)}, "after": {strconv.FormatInt(after, 10)}, "most": {strconv.Itoa(most)}}
	req, err := control.NewRequest(ctx, http.MethodGet, rowsPath+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.commands.Send(req)
	if apierrors.IsResourceExpired(err) {
		return nil, fmt.Errorf("%w: %w", kine.ErrRowsGone, err)
	}
	if err != nil {
		return nil, withCause(ctx, err)
	}
	defer resp.Body.Close()
	object, err := io.ReadAll(io.LimitReader(resp.Body, segment.MaxObject+1))
	if err == nil && len(object) > segment.MaxObject {
		err = fmt.Errorf("it sends more than %d bytes of rows", segment.MaxObject)
	}
	return object, withCause(ctx, err)
}

// withCause adds to an error why ctx has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
