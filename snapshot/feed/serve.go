// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot/segment"
)

// These are the paths of the commands: GET of a [State], and of a segment.
const (
	statePath = "/feed/state"
	rowsPath  = "/feed/rows"
)

// Wait is how long a request for a state waits for news.
const Wait = 20 * time.Second

// query encodes what the platform knows.
func (s Seen) query() url.Values {
	q := url.Values{"opening": {strconv.FormatUint(s.Opening, 10)}, "closing": {strconv.FormatBool(s.Closing)}}
	for name, n := range map[string]int64{"last": s.Last, "has": s.Has, "keep": s.Keep} {
		q.Set(name, strconv.FormatInt(n, 10))
	}
	return q
}

func seenOf(q url.Values) (s Seen, err error) {
	var errs [5]error
	s.Opening, errs[0] = strconv.ParseUint(q.Get("opening"), 10, 64)
	s.Closing, errs[1] = strconv.ParseBool(q.Get("closing"))
	s.Last, errs[2] = strconv.ParseInt(q.Get("last"), 10, 64)
	s.Has, errs[3] = strconv.ParseInt(q.Get("has"), 10, 64)
	s.Keep, errs[4] = strconv.ParseInt(q.Get("keep"), 10, 64)
	return s, errors.Join(errs[:]...)
}

// Serve adds the routes for the platform. space is the name of the space.
func (f *Feed) Serve(mux *http.ServeMux, space string) {
	mux.Handle("GET "+statePath, control.Answer(func(r *http.Request) (any, error) {
		seen, err := seenOf(r.URL.Query())
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return f.watch(r.Context(), seen), nil
	}))
	codec := sync.OnceValues(segment.NewCodec)
	mux.HandleFunc("GET "+rowsPath, func(w http.ResponseWriter, r *http.Request) {
		object, err := f.rows(r, space, codec)
		if err != nil {
			control.Answer(func(*http.Request) (any, error) { return nil, err }).ServeHTTP(w, r)
			return
		}
		_, _ = w.Write(object) // the platform checks it
	})
}

// watch returns the state when the platform doesn't know it, or after a while.
func (f *Feed) watch(ctx context.Context, seen Seen) State {
	ctx, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	f.ask(seen)
	defer f.answered()
	for {
		state, is, changed := f.news(seen.State)
		if is {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state
		}
	}
}

// rows returns a segment of rows; nothing if there are none.
func (f *Feed) rows(r *http.Request, space string, codec func() (*segment.Codec, error)) ([]byte, error) {
	q := r.URL.Query()
	opening, err := strconv.ParseUint(q.Get("opening"), 10, 64)
	after, afterErr := strconv.ParseInt(q.Get("after"), 10, 64)
	most, mostErr := strconv.Atoi(q.Get("most"))
	if err = errors.Join(err, afterErr, mostErr); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	store, end := f.read(opening)
	if store == nil {
		return nil, apierrors.NewServiceUnavailable("the store has been closed")
	}
	defer end()
	rows, err := store.RowsAfter(r.Context(), after, min(most, segment.RowBytes))
	if errors.Is(err, kine.ErrRowsGone) {
		return nil, fmt.Errorf("%w: %w", apierrors.NewResourceExpired(err.Error()), err)
	}
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	c, err := codec()
	if err != nil {
		return nil, err
	}
	return c.Encode(segment.Header{Space: space}, rows)
}
