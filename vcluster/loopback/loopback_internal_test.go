// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/vcluster/gate"
)

// call sends a request by a loopback that is bound to h. The response's body is
// closed with the test.
func call(ctx context.Context, t *testing.T, h http.HandlerFunc, body io.Reader) (answer, error) {
	t.Helper()
	g := gate.New()
	g.Open(h)
	t.Cleanup(func() { g.Close(time.Minute) }) // hangs if a call does not end
	return send(ctx, t, g, body)
}

// answer is what a test looks at of a response.
type answer struct {
	code   int
	header http.Header
	body   io.ReadCloser
}

func send(ctx context.Context, t *testing.T, g *gate.Gate, body io.Reader) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, Host+"/a/b?c=d", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&Transport{g}).RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return answer{resp.StatusCode, resp.Header, resp.Body}, nil
}

func TestLoopbackCarriesRequestAndResponse(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	resp, err := call(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Kind", "test")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Kind", "too late")
		_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+string(body))
	}, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), "POST /a/b?c=d hello"; got != want {
		t.Errorf("body %q, want %q", got, want)
	}
	if resp.code != http.StatusTeapot || resp.header.Get("X-Kind") != "test" {
		t.Errorf("%d, %v", resp.code, resp.header)
	}
}

func TestLoopbackStreamsAndEndsWithItsReader(t *testing.T) {
	for reason, end := range map[string]func(answer, context.CancelFunc){
		"the body is closed":       func(r answer, _ context.CancelFunc) { _ = r.body.Close() },
		"the request is cancelled": func(_ answer, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(reason, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			resp, err := call(ctx, t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				_, _ = io.WriteString(w, "first")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			first := make([]byte, 5)
			if _, err := io.ReadFull(resp.body, first); err != nil || string(first) != "first" {
				t.Errorf("%q, %v", first, err)
			}
			end(resp, cancel)
			<-ended
			if _, err := io.ReadAll(resp.body); reason != "the body is closed" && err == nil {
				t.Error("a response that was cut short reads as whole")
			}
		})
	}
}

// A handler leaves off when its client cancels, and its response ends: it must
// not read as whole, however late the loopback itself hears of the end. A list
// that was cut between two items would be taken for all there is.
func TestACancelledResponseNeverReadsAsWhole(t *testing.T) {
	base, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := call(deafContext{base}, t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		<-r.Context().Done()
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.body, first); err != nil || string(first) != "first" {
		t.Errorf("%q, %v", first, err)
	}
	cancel()
	if rest, err := io.ReadAll(resp.body); !errors.Is(err, context.Canceled) {
		t.Errorf("the response ends after %q with error %v", rest, err)
	}
}

// deafContext ends as its parent does, but calls none of the functions that
// [context.AfterFunc] gives it: it stands for a scheduler that runs them late.
type deafContext struct{ context.Context }

func (deafContext) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

func (c deafContext) Value(any) any { return nil } // or else the parent is asked behind its back

func TestLoopbackWritesFailWhenNobodyReads(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	_, err := call(ctx, t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, err := w.Write([]byte("nobody reads this"))
		ended <- err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the write succeeded")
	}
}

func TestLoopbackTurnsPanicsIntoErrors(t *testing.T) {
	if _, err := call(t.Context(), t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil); err == nil {
		t.Error("a panic before the header is an answer")
	}
	resp, err := call(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.body); err == nil {
		t.Error("a panic after the header is the end of a whole response")
	}
}

func TestLoopbackGivesUpWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	go func() {
		<-started
		cancel()
	}()
	_, err := call(ctx, t, func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestAClosedGateRefuses(t *testing.T) {
	g := gate.New()
	if _, err := send(t.Context(), t, g, nil); !errors.Is(err, gate.ErrStopping) {
		t.Errorf("before it is open: %v", err)
	}
	g.Open(http.NotFoundHandler())
	g.Close(time.Minute)
	if _, err := send(t.Context(), t, g, nil); !errors.Is(err, gate.ErrStopping) {
		t.Errorf("after it is closed: %v", err)
	}
}
