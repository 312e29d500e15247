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

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/streams"
)

func copyTo(w io.Writer, resp *http.Response) (int64, error) { return io.Copy(w, resp.Body) }

// T8, S5: a space sleeps no more while a stream is open in it, wakes for one, and
// ends its streams when it stops.
func TestStreamsKeepASpaceAwakeAndEndWithIt(t *testing.T) {
	s := theBed(t).space(t, "life")
	s.run(t, newPod("web", "app"))
	if err := s.shard.Sleep(t.Context(), "life"); err != nil {
		t.Fatal(err)
	}
	const pod = "/api/v1/namespaces/default/pods/web/"
	follow := s.open(t, t.Context(), pod+"log?follow=true", nil) // wakes it
	defer func() { _ = follow.Body.Close() }()
	shell := s.open(t, t.Context(), pod+"exec?command=cat&stdin=true&stdout=true", http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
	})
	defer func() { _ = shell.Body.Close() }()
	if follow.StatusCode != http.StatusOK || shell.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("streams answer %d and %d", follow.StatusCode, shell.StatusCode)
	}
	if status, _ := s.shard.Status("life"); status.Requests != 2 {
		t.Errorf("%d requests count as under way, want 2", status.Requests)
	}
	if err := s.shard.Sleep(t.Context(), "life"); err != nil { // forced: whoever uses it
		t.Fatal(err)
	}
	for name, body := range map[string]io.Reader{"log": follow.Body, "exec": shell.Body} {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Logf("%s ended with %v", name, err)
		}
	}
	testhost.Eventually(t, "streams end at the kubelet", func(context.Context) error {
		if calls := s.kubelet.underWay("berth-life"); len(calls) > 0 {
			return fmt.Errorf("at the kubelet go on %v", calls)
		}
		return nil
	})
}

// S5: a tenant that holds streams holds no more than its share, and gets it back.
func TestStreamsOfASpaceAreBounded(t *testing.T) {
	s := theBed(t).space(t, "many")
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
