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

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-dev/berth/internal/testhost"
)

// N1: a host that can not reach a kubelet names its address; to web sockets it
// does so in the middle of the stream, which it has begun by then.
func TestAKubeletThatIsNotReachedIsNotNamed(t *testing.T) {
	s := theEnv(t).space(t, "cut")
	s.run(t, newPod("web", "app"))
	port := func(ctx context.Context, port int32) error {
		n, err := s.host.CoreV1().Nodes().Get(ctx, hostNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = port
		_, err = s.host.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	}
	testhost.Eventually(t, "the node is elsewhere", func(ctx context.Context) error { return port(ctx, 1) })
	t.Cleanup(func() {
		for port(context.Background(), s.kubelet.port()) != nil { // another has written to it
		}
	})
	for name, protocols := range map[string]string{"V5": "v5.channel.k8s.io", "Both": "v5.channel.k8s.io, v4.channel.k8s.io", "V4": "v4.channel.k8s.io", "Base64": "base64.channel.k8s.io"} {
		for _, path := range []string{"exec?command=id&stdout=true", "attach?stdout=true", "portforward?ports=80"} {
			t.Run(name+"/"+path, func(t *testing.T) {
				resp := s.open(t, t.Context(), "/api/v1/namespaces/default/pods/web/"+path, http.Header{
					"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
					"Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {protocols},
				})
				defer func() { _ = resp.Body.Close() }()
				var body strings.Builder
				_, _ = copyTo(&body, resp)
				if resp.StatusCode < http.StatusBadRequest {
					t.Errorf("answer is %d", resp.StatusCode)
				}
				if text := fmt.Sprint(resp.Header) + body.String(); tells(s, text) || strings.Contains(text, "127.0.0.1") || strings.Contains(text, "exec/berth") {
					t.Errorf("answer tells of the host: %s", text)
				}
			})
		}
	}
}

// N1: what a container runtime says when a stream has begun already.
func TestErrorsInStreamsTellNothingOfTheHost(t *testing.T) {
	s := theEnv(t).space(t, "midstream")
	s.run(t, newPod("web", "app"))
	check := func(t *testing.T, text string) {
		t.Helper()
		if tells(s, text) || strings.Contains(text, "127.0.0.1") || strings.Contains(text, "10.11.12.13") {
			t.Errorf("client is told of the host: %s", text)
		}
		if !strings.Contains(text, "no such container") || !strings.Contains(text, "error executing command") || strings.Contains(text, "container: Internal error") || strings.Contains(text, "container: error executing") {
			t.Errorf("client is not told what is the matter: %s", text)
		}
	}
	for name, e := range s.executors(t, "web", "exec", &corev1.PodExecOptions{Command: []string{"broken"}, Stdout: true}) {
		t.Run(name, func(t *testing.T) {
			err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
			if err == nil {
				t.Fatal("the command succeeded")
			}
			check(t, err.Error())
		})
	}
	for _, protocol := range []string{"", "channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io"} {
		t.Run("WebSocket"+protocol, func(t *testing.T) {
			check(t, s.said(t, "exec?command=broken&stdout=true&stderr=true", protocol))
		})
	}
}

// said is what comes of a web socket until it ends.
func (s *space) said(t *testing.T, path, protocol string) string {
	t.Helper()
	tls, err := rest.TLSConfigFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{TLSClientConfig: tls}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	}
	conn, resp, err := dialer.DialContext(t.Context(), "wss"+strings.TrimPrefix(s.config.Host, "https")+"/api/v1/namespaces/default/pods/web/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = resp.Body.Close(), conn.Close() }()
	var all strings.Builder
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return all.String()
		}
		all.Write(message)
	}
}
