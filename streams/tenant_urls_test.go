// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/internal/testruntime"
)

// fullURL returns the URL of a request by the full path, of which the tenant has the space's name.
func (s *space) fullURL(t *testing.T, u *url.URL) *url.URL {
	t.Helper()
	full, ok := resolve.Full(s.name, strings.TrimPrefix(u.Path, resolve.Prefix+s.name))
	if !ok {
		t.Fatalf("%s has no full path", u)
	}
	to := *u
	to.Path = full
	return &to
}

// U1, S5: exec works by a full path, with both protocols.
func TestExecWorksByAFullPath(t *testing.T) {
	s := theEnv(t).space(t, "full-exec")
	s.run(t, newPod("web", "app"))
	u := s.fullURL(t, s.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("web").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec).URL())
	spdy, err := remotecommand.NewSPDYExecutor(s.config, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, u.String())
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": webSocket} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
			if err != nil || out.String() != "hello" {
				t.Errorf("the command printed %q (%v)", out.String(), err)
			}
		})
	}
}

// U1, S5: port forwarding works by a full path, with both protocols.
func TestPortForwardWorksByAFullPath(t *testing.T) {
	s := theEnv(t).space(t, "full-forward")
	s.run(t, newPod("web", "app"))
	port := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.URL.Path) })
	u := s.fullURL(t, s.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("web").SubResource("portforward").URL())
	for name, dialer := range testruntime.Dialers(t, s.config, u) {
		t.Run(name, func(t *testing.T) {
			ports := testruntime.Forward(t, dialer, port)
			if got := get(t, fmt.Sprintf("http://127.0.0.1:%d/there", ports[0].Local)); got != "you asked for /there" {
				t.Errorf("the pod says %q", got)
			}
		})
	}
}
