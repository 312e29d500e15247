// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berth-dev/berth/internal/testruntime"
)

// kubelet serves what a host's API server asks of a kubelet, with the code of
// upstream's container runtimes; its containers are processes of this machine,
// and the ports of its pods are those of this machine's loopback interface.
type kubelet struct {
	testruntime.Runtime
	server *httptest.Server

	mu      sync.Mutex
	calls   []*url.URL
	refusal func(*url.URL) (code int, message string)
	running map[*url.URL]struct{}
}

// creation is how long a client may take to open the streams of a connection.
const creation = 2 * time.Second

func startKubelet(dir string) *kubelet {
	k := &kubelet{running: map[*url.URL]struct{}{}}
	k.Dir, k.Says = dir, k.says
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if o, ok := options(w, r); ok {
			remotecommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], o, time.Hour, creation, remotecommand.SupportedStreamingProtocols)
		}
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if o, ok := options(w, r); ok {
			remotecommand.ServeAttach(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), o, time.Hour, creation, remotecommand.SupportedStreamingProtocols)
		}
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		o, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", o, time.Hour, creation, portforward.SupportedProtocols)
	})
	k.server = httptest.NewTLSServer(k.guard(mux))
	return k
}

func (k *kubelet) port() int32 {
	_, port, _ := net.SplitHostPort(k.server.Listener.Addr().String())
	n, _ := strconv.ParseInt(port, 10, 32)
	return int32(n)
}

// guard notes each call, and refuses those that it was told to.
func (k *kubelet) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		k.calls = append(k.calls, r.URL)
		refusal := k.refusal
		k.running[r.URL] = struct{}{}
		k.mu.Unlock()
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.running, r.URL)
		}()
		if refusal != nil {
			if code, message := refusal(r.URL); code != 0 {
				http.Error(w, message, code)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuse has calls refused while the test runs.
func (k *kubelet) refuse(t *testing.T, refusal func(*url.URL) (int, string)) {
	set := func(f func(*url.URL) (int, string)) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.refusal = f
	}
	set(refusal)
	t.Cleanup(func() { set(nil) })
}

// callsOf are the calls for a host pod, in order.
func (k *kubelet) callsOf(pod string) (calls []*url.URL) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.calls {
		if strings.Contains(u.Path, "/"+pod) {
			calls = append(calls, u)
		}
	}
	return calls
}

// underWay are the calls that go on in a host namespace.
func (k *kubelet) underWay(namespace string) (paths []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for u := range k.running {
		if strings.Contains(u.Path, "/"+namespace+"/") {
			paths = append(paths, u.Path)
		}
	}
	return paths
}

func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "log of container %s\n", r.PathValue("container"))
	if r.URL.Query().Get("follow") == "true" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func options(w http.ResponseWriter, r *http.Request) (*remotecommand.Options, bool) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return o, err == nil
}

// says what a container runtime may.
func (k *kubelet) says(failure error) error {
	return fmt.Errorf("failed to exec: Post \"https://127.0.0.1:%d/exec/berth-x\": dial tcp 10.11.12.13:10250: node %s: %w", k.port(), hostNode, failure)
}

// AttachContainer is to a container that says what it reads.
func (k *kubelet) AttachContainer(
	_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	_, err := io.Copy(out, in)
	return err
}
