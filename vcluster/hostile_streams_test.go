// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/podstream"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

// silentPods are pods that say nothing, as long as somebody is connected.
type silentPods struct{}

var _ podaccess.Pods = silentPods{}

// silentConn is a connection whose other end reads all, and says nothing but greeting.
type silentConn struct {
	net.Conn
	done  chan struct{}
	close func() error
}

func newSilentConn(greeting string) silentConn {
	near, far := net.Pipe()
	c := silentConn{Conn: near, done: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		close(c.done)
		return near.Close()
	})
	go func() {
		defer func() { _ = far.Close() }()
		if greeting != "" {
			if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
				return
			}
			_, _ = io.WriteString(far, greeting)
		}
		_, _ = io.Copy(io.Discard, far)
	}()
	return c
}

func (c silentConn) Done() <-chan struct{} { return c.done }
func (c silentConn) Close() error          { return c.close() }

func (silentPods) Log(ctx context.Context, _ *corev1.Pod, _ url.Values) (io.ReadCloser, error) {
	c := newSilentConn("")
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, nil
}

func (silentPods) Stream(ctx context.Context, _ *corev1.Pod, _ string, _ http.Header, _ url.Values) (podstream.Host, error) {
	c := newSilentConn("")
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, nil
}

func (silentPods) Said(_ *corev1.Pod, message string) string { return message }

func (silentPods) Dial(context.Context, *corev1.Pod, uint16) (net.Conn, error) {
	return newSilentConn("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"), nil
}

// makeLargePod makes a pod of almost 1 MiB that runs somewhere.
func makeLargePod(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	if _, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web := corev1.Container{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	for i := range 30 {
		web.Env = append(web.Env, corev1.EnvVar{Name: fmt.Sprint("LARGE_", i), Value: strings.Repeat("x", 30<<10)})
	}
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{web}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}}
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// L3 (S2): connections to a pod don't hold the pod itself, which was read to make them, for as long as they last.
func TestHostileConnectionsToALargePodHoldLittle(t *testing.T) {
	endpoint := newTestGateway(t)
	c := endpoint.config(t, "streams")
	account := bounds.NewAccount(nil)
	c.Controllers, c.Account, c.Pods = nil, account, silentPods{}
	p := endpoint.start(t, c)
	makeLargePod(t, clientset(t, p.Loopback()))
	outside := admin(t, p)
	outside.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(outside)
	if err != nil {
		t.Fatal(err)
	}
	open := func(path string, header http.Header) (io.ReadCloser, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, outside.Host+"/api/v1/namespaces/default/pods/web"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name := range header {
			r.Header.Set(name, header.Get(name))
		}
		resp, err := client.Do(r)
		if err == nil && resp.StatusCode >= http.StatusBadRequest {
			said, _ := io.ReadAll(resp.Body)
			err = fmt.Errorf("status %d: %s", resp.StatusCode, said)
		}
		if err != nil {
			return nil, err
		}
		return resp.Body, nil
	}
	socket := func(protocol string) http.Header {
		h := http.Header{}
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": protocol,
		} {
			h.Set(name, value)
		}
		return h
	}
	eventually(t, func() error { // the pod's address is known to what dials it
		body, err := open("/proxy/", nil)
		if err == nil {
			err = body.Close()
		}
		return err
	})
	for name, c := range map[string]struct {
		path   string
		header http.Header
	}{
		"log":         {"/log?follow=true", nil},
		"exec":        {"/exec?command=cat&stdin=true&stdout=true", socket("v5.channel.k8s.io")},
		"attach":      {"/attach?stdout=true", socket("v5.channel.k8s.io")},
		"portforward": {"/portforward?ports=80", socket("v4.channel.k8s.io")},
		"proxy":       {"/proxy/", nil},
	} {
		t.Run(name, func(t *testing.T) {
			idle := func() error {
				if used := account.Used(bounds.MemoryBytes); used != 0 {
					return fmt.Errorf("%d bytes are accounted", used)
				}
				return nil
			}
			eventually(t, idle)
			const connections = 4
			for range connections {
				body, err := open(c.path, c.header)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = body.Close() }()
			}
			// What it takes to answer is given back when the answer has begun.
			if err := until(t.Context(), idle); err != nil {
				t.Errorf("with %d connections open: %v", connections, err)
			}
		})
	}
}
