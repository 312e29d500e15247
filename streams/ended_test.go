// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-dev/berth/internal/testhost"
)

// endable is a space's handler whose requests can be ended, as those of a ServiceAccount of the host are when its token is refused.
type endable struct {
	next http.Handler

	mu   sync.Mutex
	ends []context.CancelFunc
}

func (e *endable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancel(r.Context())
	defer end()
	e.mu.Lock()
	e.ends = append(e.ends, end)
	e.mu.Unlock()
	e.next.ServeHTTP(w, r.Clone(ctx))
}

func (e *endable) endAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.ends {
		end()
	}
	e.ends = nil
}

// O9: exec, attach, logs and proxied upgrades end with the context of their request, on both sides.
func TestStreamsEndWithTheirRequest(t *testing.T) {
	s := theEnv(t).space(t, "ended")
	s.run(t, newPod("web", "app"))
	handler := &endable{next: s.shard.Handler(s.name)}
	s.route(s.name, handler)
	t.Cleanup(func() { s.route(s.name, nil) })

	streams := map[string]func(context.Context, io.Writer) error{}
	for name, e := range s.executors(t, "web", "exec", &corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}) {
		streams["exec over "+name] = echo(e)
	}
	for name, e := range s.executors(t, "web", "attach", &corev1.PodAttachOptions{Stdin: true, Stdout: true}) {
		streams["attach over "+name] = echo(e)
	}
	streams["logs"] = func(ctx context.Context, out io.Writer) error {
		logs, err := s.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		if err != nil {
			return err
		}
		defer logs.Close()
		_, err = io.Copy(out, logs)
		return err
	}
	port := serve(t, shout)
	streams["an upgrade through a proxy"] = func(ctx context.Context, out io.Writer) error {
		resp := s.open(t, ctx, fmt.Sprintf("/api/v1/namespaces/default/pods/web:%d/proxy/", port), http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}})
		defer resp.Body.Close()
		_, err := io.Copy(out, resp.Body)
		return err
	}
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) { endsWith(t, handler, stream) })
	}
	testhost.Eventually(t, "the end on the host", func(context.Context) error {
		s.kubelet.mu.Lock()
		defer s.kubelet.mu.Unlock()
		for u := range s.kubelet.running {
			if strings.Contains(u.Path, "/"+s.hostPod("web")) {
				return fmt.Errorf("%s lasts", u.Path)
			}
		}
		return nil
	})
}

// shout upgrades a connection, says a word, and waits for its end.
func shout(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
	_, _ = io.Copy(io.Discard, buffered)
}

// echo sends a word, and no end.
func echo(e remotecommand.Executor) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		in, feed := io.Pipe()
		defer feed.Close()
		go func() { _, _ = io.WriteString(feed, "hello") }()
		return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
	}
}

// endsWith fails unless a stream that has begun ends with its request.
func endsWith(t *testing.T, handler *endable, stream func(context.Context, io.Writer) error) {
	out, in := io.Pipe()
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	go func() {
		err := stream(ctx, in)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("the stream does not begin: %v", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	select {
	case err := <-ended:
		t.Fatalf("the stream ended before its request: %v", err)
	default:
	}
	handler.endAll()
	if err := <-ended; ctx.Err() != nil {
		t.Errorf("the stream lasts: %v", err)
	}
}
