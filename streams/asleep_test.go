// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/streams"
)

func copyTo(w io.Writer, resp *http.Response) (int64, error) { return io.Copy(w, resp.Body) }

// T8, S5: a space sleeps no more while a stream is open in it, wakes for one, and
// ends its streams when it stops.
func TestStreamsKeepASpaceAwakeAndEndWithIt(t *testing.T) {
	s := theEnv(t).space(t, "life")
	s.run(t, newPod("web", "app"))
	if err := s.shard.Sleep(t.Context(), "life"); err != nil {
		t.Fatal(err)
	}
	const pod = "/api/v1/namespaces/default/pods/web/"
	follow := s.open(t, t.Context(), pod+"log?follow=true", nil) // wakes it
	defer func() { _ = follow.Body.Close() }()
	if follow.StatusCode != http.StatusOK {
		t.Fatalf("log answers %d", follow.StatusCode)
	}
	ends := map[string]<-chan error{}
	for name, e := range s.executors(t, "web", "exec", &corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}) {
		ends[name] = begun(t, e)
	}
	if status, _ := s.shard.Status("life"); status.Requests != 3 {
		t.Errorf("%d requests count as under way, want 3", status.Requests)
	}
	if err := s.shard.Sleep(t.Context(), "life"); err != nil { // forced: whoever uses it
		t.Fatal(err)
	}
	if _, err := copyTo(io.Discard, follow); err != nil {
		t.Logf("log ended with %v", err)
	}
	for name, end := range ends {
		if err := <-end; err == nil || !strings.Contains(err.Error(), "the connection to the container has ended") {
			t.Errorf("by %s, a command that was cut has ended with %v", name, err)
		}
	}
	testhost.Eventually(t, "streams end at the kubelet", func(context.Context) error {
		if calls := s.kubelet.underWay("berth-life"); len(calls) > 0 {
			return fmt.Errorf("at the kubelet go on %v", calls)
		}
		return nil
	})
}

// begun returns once the command of e, which says what it reads, has said so.
func begun(t *testing.T, e remotecommand.Executor) (ended <-chan error) {
	t.Helper()
	in, feed := io.Pipe()
	back, out := io.Pipe()
	t.Cleanup(func() { _, _ = feed.Close(), back.Close() })
	end := make(chan error, 1)
	go func() {
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: out})
		_ = out.CloseWithError(err)
		end <- err
	}()
	if _, err := io.WriteString(feed, "hi"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(back, make([]byte, len("hi"))); err != nil {
		t.Fatal(err)
	}
	return end
}

// S5: a tenant that holds streams holds no more than its share, and gets it back.
func TestStreamsOfASpaceAreBounded(t *testing.T) {
	s := theEnv(t).space(t, "many")
	s.run(t, newPod("web", "app"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const log = "/api/v1/namespaces/default/pods/web/log"
	var held []*http.Response
	for range streams.Max {
		resp := s.open(t, ctx, log+"?follow=true", nil) //nolint:bodyclose // below, all of them
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d answers %d", len(held), resp.StatusCode)
		}
		held = append(held, resp) //nolint:bodyclose // below, all of them
	}
	resp := s.open(t, ctx, log, nil)
	var body strings.Builder
	_, _ = copyTo(&body, resp)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body.String(), "are open in this space") {
		t.Errorf("one more answers %d: %s", resp.StatusCode, body.String())
	}
	for _, resp := range held {
		_ = resp.Body.Close()
	}
	cancel()
	testhost.Eventually(t, "a place is free again", func(ctx context.Context) error {
		_, err := s.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{}).Do(ctx).Raw()
		return err
	})
}
