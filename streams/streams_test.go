// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	criremotecommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/internal/testruntime"
)

// S5: browsers, and upstream's conformance suite, read logs by WebSocket.
func TestLogsAreReadByWebSocket(t *testing.T) {
	s := theEnv(t).space(t, "weblogs")
	s.run(t, newPod("web", "app"))
	config, err := websocket.NewConfig("wss"+strings.TrimPrefix(s.config.Host, "https")+"/api/v1/namespaces/default/pods/web/log", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = []string{"binary.k8s.io"}
	if config.TlsConfig, err = rest.TLSConfigFor(s.config); err != nil {
		t.Fatal(err)
	}
	ws, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }()
	log, err := io.ReadAll(ws)
	if err != nil || string(log) != "log of container app\n" {
		t.Errorf("log is %q, %v", log, err)
	}
}

// S5: a log is of the container that was asked for, with every option that a
// tenant may give, and no other.
func TestLogsComeFromTheHostPodWithTheTenantsOptions(t *testing.T) {
	s := theEnv(t).space(t, "logs")
	s.run(t, newPod("web", "app", "side"))
	s.run(t, newPod("lone", "app"))
	read := func(pod string, o corev1.PodLogOptions) (string, error) {
		log, err := s.CoreV1().Pods("default").GetLogs(pod, &o).Stream(t.Context())
		if err != nil {
			return "", err
		}
		defer func() { _ = log.Close() }()
		b, err := io.ReadAll(log)
		return string(b), err
	}
	since := metav1.Now()
	got, err := read("web", corev1.PodLogOptions{
		Container: "side", Previous: true, Timestamps: true, SinceTime: &since, TailLines: ptr.To(int64(5)), LimitBytes: ptr.To(int64(900)),
		InsecureSkipTLSVerifyBackend: true,
	})
	if err != nil || got != "log of container side\n" {
		t.Errorf("log is %q, %v", got, err)
	}
	calls := s.kubelet.callsOf(s.hostPod("web"))
	if len(calls) != 1 || calls[0].Path != "/containerLogs/berth-logs/logs--default--web/side" {
		t.Fatalf("kubelet was asked for %v", calls)
	}
	want := url.Values{
		"previous": {"true"}, "timestamps": {"true"}, "sinceTime": {since.UTC().Format(time.RFC3339)}, "tailLines": {"5"}, "limitBytes": {"900"},
	}
	asked := calls[0].Query()
	asked.Del("stream") // the default, which hosts have or have not
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("options -want +got:\n%s", diff)
	}
	if got, err := read("lone", corev1.PodLogOptions{}); err != nil || got != "log of container app\n" {
		t.Errorf("log of the only container is %q, %v", got, err)
	}
	if _, err := read("web", corev1.PodLogOptions{}); err == nil || !strings.Contains(err.Error(), "choose one of: [app side]") {
		t.Errorf("no container was named: %v", err)
	}
	if _, err := read("web", corev1.PodLogOptions{Container: "../../other"}); err == nil || !strings.Contains(err.Error(), "is not valid for pod web") {
		t.Errorf("a container that is not the pod's: %v", err)
	}
}

// executors are the two protocols there are.
func (s *space) executors(t *testing.T, pod, subresource string, options any) map[string]remotecommand.Executor {
	t.Helper()
	r := s.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(pod).SubResource(subresource)
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	case *corev1.PodAttachOptions:
		r = r.VersionedParams(o, scheme.ParameterCodec)
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(s.config, http.MethodPost, r.URL())
	if err != nil {
		t.Fatal(err)
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, r.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": overSPDY, "WebSocket": overWebSocket}
}

// S5: kubectl exec and cp.
func TestExecRunsACommandInTheHostPod(t *testing.T) {
	s := theEnv(t).space(t, "exec")
	s.run(t, newPod("web", "app"))
	for name, e := range s.executors(t, "web", "exec", &corev1.PodExecOptions{
		Container: "app", Command: []string{"sh", "-c", "cat; echo to stderr: $0 >&2; exit 7", "a&b=c d"}, Stdin: true, Stdout: true, Stderr: true,
	}) {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			in := strings.Repeat("much of it\n", 100_000)
			err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errOut})
			var exit exec.CodeExitError
			if !errors.As(err, &exit) || exit.Code != 7 {
				t.Errorf("command ended with %v, want 7", err)
			}
			if out.String() != in {
				t.Errorf("%d bytes came back of %d", out.Len(), len(in))
			}
			if got := errOut.String(); got != "to stderr: a&b=c d\n" {
				t.Errorf("stderr is %q", got)
			}
		})
	}
}

// sizes is a terminal that has each size in turn.
type sizes []*remotecommand.TerminalSize

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	next := (*s)[0]
	*s = (*s)[1:]
	return next
}

// S5: kubectl exec -it.
func TestATerminalHasItsSize(t *testing.T) {
	s := theEnv(t).space(t, "tty")
	s.run(t, newPod("web", "app"))
	var width uint16 = 100
	for name, e := range s.executors(t, "web", "exec", &corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true, TTY: true}) {
		t.Run(name, func(t *testing.T) {
			width++
			in, feed := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- e.StreamWithContext(t.Context(), remotecommand.StreamOptions{
					Stdin: in, Stdout: io.Discard, Tty: true, TerminalSizeQueue: &sizes{{Width: width, Height: 30}},
				})
			}()
			testhost.Eventually(t, "the terminal is resized", func(context.Context) error {
				all := s.kubelet.Sizes()
				if !slices.Contains(all, criremotecommand.TerminalSize{Width: width, Height: 30}) {
					return fmt.Errorf("sizes are %v", all)
				}
				return nil
			})
			_ = feed.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// S5: kubectl attach.
func TestAttachReachesTheContainer(t *testing.T) {
	s := theEnv(t).space(t, "attach")
	s.run(t, newPod("web", "app", "side"))
	for name, e := range s.executors(t, "web", "attach", &corev1.PodAttachOptions{Container: "side", Stdin: true, Stdout: true}) {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}); err != nil {
				t.Fatal(err)
			}
			if out.String() != "hello" {
				t.Errorf("container said %q", out.String())
			}
		})
	}
	for _, u := range s.kubelet.callsOf(s.hostPod("web")) {
		if u.Path != "/attach/berth-attach/attach--default--web/side" {
			t.Errorf("kubelet was asked for %s", u)
		}
	}
}

// S5: kubectl port-forward.
func TestPortForwardReachesThePod(t *testing.T) {
	s := theEnv(t).space(t, "forward")
	s.run(t, newPod("web", "app"))
	port := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "you asked for %s", r.URL.Path) })
	u := s.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("web").SubResource("portforward").URL()
	for name, dialer := range testruntime.Dialers(t, s.config, u) {
		t.Run(name, func(t *testing.T) {
			ports := testruntime.Forward(t, dialer, port)
			for range 3 {
				if got := get(t, fmt.Sprintf("http://127.0.0.1:%d/there", ports[0].Local)); got != "you asked for /there" {
					t.Errorf("pod said %q", got)
				}
			}
		})
	}
}

// serve serves on a port that the tests' pods are taken to have.
func serve(t *testing.T, h http.HandlerFunc) int {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
