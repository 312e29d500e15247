// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

// Host names the API server in URLs of the loopback. Nothing resolves
// or dials it.
const Host = "http://space.invalid"

// Config returns a client configuration whose requests go to t.
func Config(t http.RoundTripper, token string) *rest.Config {
	return &rest.Config{
		Host:        Host,
		BearerToken: token,
		Transport:   t,
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		DisableCompression: true,
		QPS:                -1,
	}
}

// Transport is an [http.RoundTripper] that calls the API server in process: no
// socket, no TLS. Clients get it before the server exists.
type Transport struct {
	Gate *gate.Gate
}

// RoundTrip returns when the handler has sent its header. The handler's context
// ends with the request's, or when the body is closed.
func (l *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.Gate.Enter() {
		roundtrip.CloseBody(req)
		return nil, gate.ErrStopping
	}
	ctx, cancel := context.WithCancel(inside.Mark(req.Context()))
	w := newPipeWriter(cancel)
	// A client that gives up need not close the body: end reads and writes.
	unhook := context.AfterFunc(req.Context(), func() {
		_ = w.writer.CloseWithError(context.Cause(req.Context()))
	})
	go func() { // finish recovers
		defer l.Gate.Leave()
		defer cancel()
		defer unhook()
		defer roundtrip.CloseBody(req)
		defer w.finish(req.Context())
		l.Gate.Serve(w, serverRequest(ctx, req))
	}()
	select {
	case <-w.started:
		return l.response(w, req)
	case <-req.Context().Done():
		w.abandon()
		return nil, context.Cause(req.Context())
	}
}

// response returns what the handler answers. A stopping server's "come again
// later" becomes an error: upstream's own clients would come again for ten
// seconds and more, and keep goroutines for it.
func (l *Transport) response(w *pipeWriter, req *http.Request) (*http.Response, error) {
	resp, err := w.response(req)
	if err == nil && resp.StatusCode == http.StatusServiceUnavailable && l.Gate.Drain.Err() != nil {
		w.abandon()
		return nil, gate.ErrStopping
	}
	if err == nil {
		shortenError(resp)
	}
	return resp, err
}

// serverRequest turns a client's request into one as a server receives it.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
	r := req.Clone(ctx)
	r.RequestURI = r.URL.RequestURI()
	r.Host = r.URL.Host
	r.URL.Scheme, r.URL.Host = "", ""
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.RemoteAddr = "127.0.0.1:0"
	if r.Body == nil {
		r.Body = http.NoBody
	}
	return r
}

// pipeWriter is the server's side of a response: what is written to it is read
// from the response's body.
type pipeWriter struct {
	header  http.Header
	reader  *io.PipeReader
	writer  *io.PipeWriter
	cancel  context.CancelFunc
	started chan struct{}
	gone    chan bool

	once sync.Once
	code int
	sent http.Header
	err  error // the handler ended without a header: by panic, or since its client gave up
}

func newPipeWriter(cancel context.CancelFunc) *pipeWriter {
	r, w := io.Pipe()
	return &pipeWriter{
		header:  http.Header{},
		reader:  r,
		writer:  w,
		cancel:  cancel,
		started: make(chan struct{}),
		gone:    make(chan bool, 1),
	}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	if code < http.StatusOK { // informational: not the answer
		return
	}
	w.start(code, nil)
}

func (w *pipeWriter) start(code int, err error) {
	w.once.Do(func() {
		w.code, w.sent, w.err = code, w.header.Clone(), err
		close(w.started)
	})
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.start(http.StatusOK, nil)
	return w.writer.Write(b)
}

// Flush sends the header; what is written is never held back.
func (w *pipeWriter) Flush() { w.start(http.StatusOK, nil) }

// CloseNotify is asked for by upstream's wrappers of response writers; those
// who wait use the request's context.
func (w *pipeWriter) CloseNotify() <-chan bool { return w.gone }

// SetWriteDeadline ends writes, also one that waits for a reader. It is for
// stops: only a deadline that has passed means something.
func (w *pipeWriter) SetWriteDeadline(time.Time) error {
	return w.writer.CloseWithError(gate.ErrStopping)
}

// finish ends the response. It recovers the handler's panic, which is how an
// API server aborts a response: the client sees an error, as it would see a
// broken connection. So it does when ctx, the client's own, has ended: the
// handler may have left off for that, in the middle or before it sent a header.
// It must be deferred.
func (w *pipeWriter) finish(ctx context.Context) {
	if p := recover(); p != nil {
		err := fmt.Errorf("API server aborted the response: %v", p)
		w.start(0, err)
		_ = w.writer.CloseWithError(err)
		return
	}
	err := context.Cause(ctx)
	w.start(http.StatusOK, err)
	_ = w.writer.CloseWithError(err) // nil is the end of a whole response
}

// abandon tells the handler that nobody reads any more.
func (w *pipeWriter) abandon() {
	w.cancel()
	_ = w.reader.Close()
}

func (w *pipeWriter) response(req *http.Request) (*http.Response, error) {
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)),
		StatusCode:    w.code,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        w.sent,
		Body:          pipeBody{w},
		ContentLength: -1,
		Request:       req,
	}, nil
}

// pipeBody ends the call when it is closed.
type pipeBody struct{ w *pipeWriter }

func (b pipeBody) Read(p []byte) (int, error) { return b.w.reader.Read(p) }

func (b pipeBody) Close() error {
	b.w.abandon()
	return nil
}
