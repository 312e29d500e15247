// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	criforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	cri "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/internal/testruntime"
)

// secret is what the host says of itself.
const secret = "node-7.example/10.11.12.13"

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // upstream's server says all that goes wrong
	os.Exit(m.Run())
}

// testEnv is a server of calls, before a host that serves them with the code of
// container runtimes.
type testEnv struct {
	url   string // of the server
	host  *httptest.Server
	calls sync.WaitGroup

	runtime testruntime.Runtime

	linger, keepalive time.Duration

	mu   sync.Mutex
	open int // calls that hold the host
}

func newEnv(t *testing.T) *testEnv {
	t.Helper()
	env := &testEnv{linger: testTimeout, keepalive: keepalive}
	env.runtime.Says = func(failure error) error { return fmt.Errorf("%w on %s", failure, secret) }
	env.host = httptest.NewServer(http.HandlerFunc(env.serveHost))
	server := httptest.NewServer(http.HandlerFunc(env.serve))
	env.url = server.URL
	t.Cleanup(func() {
		server.Close()
		env.calls.Wait() // each waits for what it has begun
		env.host.CloseClientConnections()
	})
	return env
}

// serve serves a path such as /exec?command=cat&stdin=1, as a space's API server does.
func (env *testEnv) serve(w http.ResponseWriter, r *http.Request) {
	env.calls.Add(1)
	defer env.calls.Done()
	q := r.URL.Query()
	o := Options{
		Forward: r.URL.Path == "/portforward", Pod: "web",
		Stdin: q.Get("stdin") != "", Stdout: q.Get("stdout") != "", Stderr: q.Get("stderr") != "", TTY: q.Get("tty") != "",
		Said: func(message string) string { return strings.ReplaceAll(message, secret, "the node") },
	}
	for _, port := range q["ports"] {
		n, _ := strconv.ParseUint(port, 10, 16)
		o.Ports = append(o.Ports, uint16(n))
	}
	call, err := New(r, o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call.linger, call.keepalive = env.linger, env.keepalive
	host, err := env.dial(call, r.URL)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	call.Serve(w, r, host)
}

// dial has the host begin a stream.
func (env *testEnv) dial(call *Call, path *url.URL) (Host, error) {
	conn, err := net.Dial("tcp", env.host.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: http.MethodPost, Host: "host", URL: path, Header: call.Header()}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, r) //nolint:bodyclose // of an upgrade
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("host answers %d", resp.StatusCode)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	env.mu.Lock()
	env.open++
	env.mu.Unlock()
	h := &hostConn{Conn: conn, from: from, done: make(chan struct{})}
	h.close = sync.OnceValue(func() error {
		env.mu.Lock()
		env.open--
		env.mu.Unlock()
		close(h.done)
		return conn.Close()
	})
	return h, nil
}

type hostConn struct {
	net.Conn
	from  *bufio.Reader
	done  chan struct{}
	close func() error
}

func (h *hostConn) Read(p []byte) (int, error) { return h.from.Read(p) }
func (h *hostConn) Close() error               { return h.close() }
func (h *hostConn) Done() <-chan struct{}      { return h.done }

// free waits until no call holds the host.
func (env *testEnv) free(t *testing.T) {
	t.Helper()
	eventually(t, "the host is left", func() error {
		env.mu.Lock()
		defer env.mu.Unlock()
		if env.open > 0 {
			return fmt.Errorf("%d calls hold it", env.open)
		}
		return nil
	})
}

func (env *testEnv) serveHost(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch r.URL.Path {
	case "/exec":
		o := &cri.Options{Stdin: q.Get("stdin") != "", Stdout: q.Get("stdout") != "", Stderr: q.Get("stderr") != "", TTY: q.Get("tty") != ""}
		cri.ServeExec(w, r, &env.runtime, "", "", "", q["command"], o, time.Hour, testTimeout, cri.SupportedStreamingProtocols)
	case "/portforward":
		criforward.ServePortForward(w, r, &env.runtime, "", "", nil, time.Hour, testTimeout, criforward.SupportedProtocols)
	}
}

// executors are clients in those protocols that kubectl speaks which have all that
// is needed.
func (env *testEnv) executors(t *testing.T, query string, needed ...func(protocol string) bool) map[string]remotecommand.Executor {
	t.Helper()
	all := dialers(t, env.url+"/exec?"+query)
	for _, has := range needed {
		maps.DeleteFunc(all, func(protocol string, _ remotecommand.Executor) bool { return !has(protocol) })
	}
	return all
}

// endsInput tells whether a protocol has a way to say that input has ended.
func endsInput(protocol string) bool { return protocol != "WebSocket v4.channel.k8s.io" }

// resizes tells whether a protocol has sizes of terminals.
func resizes(protocol string) bool { return protocol != "SPDY v2.channel.k8s.io" }

// dialers are clients of a call at an address.
func dialers(t *testing.T, at string) map[string]remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]remotecommand.Executor{}
	for _, v := range []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io"} {
		transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if all["SPDY "+v], err = remotecommand.NewSPDYExecutorForProtocols(transport, upgrader, http.MethodPost, u, v); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io"} {
		if all["WebSocket "+v], err = remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, u.String(), v); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// forwarders are clients of port forwarding.
func (env *testEnv) forwarders(t *testing.T) map[string]httpstream.Dialer {
	t.Helper()
	u, err := url.Parse(env.url + "/portforward")
	if err != nil {
		t.Fatal(err)
	}
	return testruntime.Dialers(t, &rest.Config{}, u)
}

const testTimeout = 20 * time.Second

// eventually waits until there is no error any more.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// closeWrite tells the other end that no more comes.
func closeWrite(t *testing.T, conn net.Conn) {
	t.Helper()
	half, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T has no halves", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Error(err)
	}
}
