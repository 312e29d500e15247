// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard/dedicated"
)

// takenOver is a process that answers each request, at its API and to commands, with what answer writes.
func takenOver(t *testing.T, answer func(w io.Writer) error) *dedicated.Process {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"api.sock", control.Name} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_ = answer(conn) // the platform may have hung up
				}
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() {
			_ = listener.Close()
			<-done
		})
	}
	return dedicated.NewRemote("mine", "", dedicated.Sockets(dir), nil, nil, klog.Background())
}

// codes keeps all status codes that are written, informational ones too.
type codes struct {
	*httptest.ResponseRecorder
	all []int
}

func (c *codes) WriteHeader(code int) {
	c.all = append(c.all, code)
	if code >= http.StatusOK {
		c.ResponseRecorder.WriteHeader(code)
	}
}

// S3: whoever took over a process can't have the platform hold headers without end.
func TestHostileHeadersOfAProcessAreRefused(t *testing.T) {
	const final = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	hint := "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", 1<<10) + "\r\n\r\n"
	for reason, test := range map[string]struct {
		before, repeated, after string
		times                   int
		passes                  bool
	}{
		"none":               {"", "", final, 0, true},
		"many tiny headers":  {"HTTP/1.1 200 OK\r\n", "a:\r\n", "Content-Length: 2\r\n\r\n{}", 1_500_000, false},
		"a large header":     {"HTTP/1.1 200 OK\r\nA: ", "x", "\r\nContent-Length: 2\r\n\r\n{}", 128 << 10, false},
		"a few early hints":  {"", hint, final, 3, true},
		"many early hints":   {"", hint, final, 100_000, false},
		"many continuations": {"", "HTTP/1.1 100 Continue\r\n\r\n", final, 100_000, false},
	} {
		t.Run(reason, func(t *testing.T) {
			p := takenOver(t, func(w io.Writer) error {
				buffered := bufio.NewWriter(w)
				_, err := buffered.WriteString(test.before)
				for i := 0; i < test.times && err == nil; i++ {
					_, err = buffered.WriteString(test.repeated)
				}
				if err == nil {
					_, err = buffered.WriteString(test.after)
				}
				if err == nil {
					err = buffered.Flush()
				}
				return err
			})
			want := http.StatusServiceUnavailable
			if test.passes {
				want = http.StatusOK
			}
			w := &codes{ResponseRecorder: httptest.NewRecorder()}
			p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if len(w.all) != 1 || w.all[0] != want {
				t.Errorf("a request gets the codes %v, want %d", w.all, want)
			}
			if _, err := p.State(t.Context()); (err == nil) != test.passes {
				t.Errorf("a command: %v", err)
			}
		})
	}
}

// D5: a write that the process may have done is not answered with 503, after which clients would send it again.
func TestAWriteThatMayHaveBeenDoneGetsNoAnswer(t *testing.T) {
	answered := func(p *dedicated.Process, method string, header ...string) (answered bool) {
		defer func() {
			reason := recover()
			if err, _ := reason.(error); reason != nil && !errors.Is(err, http.ErrAbortHandler) {
				panic(reason)
			}
		}()
		r, w := httptest.NewRequest(method, "/api/v1/namespaces/default/configmaps", strings.NewReader("{}")), httptest.NewRecorder()
		for _, name := range header {
			r.Header.Set(name, "x")
		}
		p.Handler().ServeHTTP(w, r)
		return w.Code == http.StatusServiceUnavailable
	}
	ends := takenOver(t, func(io.Writer) error { return errors.New("the process ends") })
	gone := dedicated.NewRemote("mine", "", dedicated.Sockets(t.TempDir()), nil, nil, klog.Background())
	for method, repeated := range map[string]bool{http.MethodGet: true, http.MethodPost: false, http.MethodPatch: false, http.MethodDelete: false} {
		if answered(ends, method) != repeated {
			t.Errorf("%s, when the process ends: answered with 503 is %t, want %t", method, !repeated, repeated)
		}
		if !answered(gone, method) {
			t.Errorf("%s, when there is no process, is not answered with 503", method)
		}
	}
	closed := dedicated.NewRemote("mine", "", dedicated.Hanging(), nil, nil, klog.Background())
	processed := 0 // each on a connection of its own, which the next one finds closed, unless it isn't ready yet to be used again
	for !answered(closed, http.MethodPost) {
		if processed++; processed == 100 {
			t.Fatal("a write of which nothing was sent, because its connection is closed, is not answered with 503")
		}
	}
	if processed == 0 {
		t.Error("the first request isn't answered by the process")
	}
	leaves := dedicated.NewRemote("mine", "", dedicated.Leaving(), nil, nil, klog.Background())
	for range 10 {
		if answered(leaves, http.MethodPost, "Idempotency-Key", "X-Idempotency-Key") {
			t.Error("a write that a process may have done before it closed the connection is answered with 503")
		}
	}
}

// U5: the answer to a write that is refused while its body is read says why. The process doesn't get all of it.
func TestAWriteThatIsRefusedSaysWhy(t *testing.T) {
	process := dedicated.NewRemote("mine", "", dedicated.Silent(), nil, nil, klog.Background())
	body := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(apierrors.NewBadRequest("of another tenant")))
	r, w := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/configmaps", body), httptest.NewRecorder()
	process.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "of another tenant") {
		t.Errorf("it is answered with %d: %s", w.Code, w.Body)
	}
}

// S3: what a process says of its space is bounded.
func TestALargeAnswerOfAProcessIsRefused(t *testing.T) {
	for size, passes := range map[int]bool{1 << 10: true, 128 << 10: false} {
		said := `{"config":"` + strings.Repeat("x", size) + `"}`
		p := takenOver(t, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said)
			return err
		})
		if _, err := p.State(t.Context()); (err == nil) != passes {
			t.Errorf("a state of %d bytes: %v", size, err)
		}
		if err := p.Get(t.Context(), "/metric", &map[string]any{}); (err == nil) != passes {
			t.Errorf("a metric of %d bytes: %v", size, err)
		}
	}
}

// S3: a process that doesn't answer doesn't hold up the platform.
func TestAProcessThatNeverAnswersIsGivenUp(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(store, []byte("a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	for name, test := range map[string]struct {
		call  func(context.Context, *dedicated.Process) error
		after time.Duration
	}{
		"begin":    {func(ctx context.Context, p *dedicated.Process) error { return p.Begin(ctx) }, 20 * time.Second},
		"end":      {func(ctx context.Context, p *dedicated.Process) error { return p.End(ctx) }, 20 * time.Second},
		"identity": {func(ctx context.Context, p *dedicated.Process) error { return p.PutIdentity(ctx, nil) }, 20 * time.Second},
		"wake":     {func(ctx context.Context, p *dedicated.Process) error { return p.Wake(ctx) }, 2*time.Minute + 5*time.Second},
		"sleep":    {func(ctx context.Context, p *dedicated.Process) error { return p.Sleep(ctx) }, 2*time.Minute + 5*time.Second},
		"restart":  {func(ctx context.Context, p *dedicated.Process) error { return p.Restart(ctx) }, 2*time.Minute + 5*time.Second},
		"metric":   {func(ctx context.Context, p *dedicated.Process) error { return p.Get(ctx, "/metric", nil) }, 20 * time.Second},
		"copy":     {func(ctx context.Context, p *dedicated.Process) error { return p.CopyStore(ctx, copied, atMost(1)) }, dedicated.PrepareTimeout},
		"put":      {func(ctx context.Context, p *dedicated.Process) error { return p.PutStore(ctx, store, false) }, dedicated.PrepareTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := dedicated.NewRemote("mine", "", dedicated.Silent(), nil, nil, klog.Background())
				began := time.Now()
				err := test.call(t.Context(), p)
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dedicated.ErrNoProgress) || time.Since(began) != test.after {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// S3: a store takes as long as it needs for as long as it advances, so that a large one can be moved, and a process
// that sends it a byte at a time is given up.
func TestTheTransferOfAStoreIsBoundByItsProgress(t *testing.T) {
	part := make([]byte, dedicated.PaceBytes)
	const parts = 13
	hash := sha256.New()
	for range parts {
		hash.Write(part)
	}
	for name, test := range map[string]struct {
		part  []byte
		pause time.Duration
		fails bool
	}{
		"slow, and advances": {part, dedicated.PaceInterval - 10*time.Second, false},
		"a byte at a time":   {part[:1], time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "copy.db")
			synctest.Test(t, func(t *testing.T) {
				p := dedicated.NewRemote("mine", "", dedicated.Answering(func(w io.Writer) {
					_, err := fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s: %x\r\n\r\n", parts*len(part), dedicated.ChecksumHeader, hash.Sum(nil))
					for sent := 0; err == nil && sent < parts*len(part); sent += len(test.part) {
						<-time.After(test.pause)
						_, err = w.Write(test.part)
					}
				}), nil, nil, klog.Background())
				began := time.Now()
				err := p.CopyStore(t.Context(), to, atMost(parts*dedicated.PaceBytes))
				took := time.Since(began)
				<-time.After(test.pause + time.Second) // of the bubble's clock: the process finds that it is given up
				if errors.Is(err, dedicated.ErrNoProgress) != test.fails || !test.fails && (err != nil || took < dedicated.PrepareTimeout) || test.fails && took > 2*dedicated.PaceInterval {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
