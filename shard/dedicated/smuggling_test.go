// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// arrivals are the requests that a process gets: USER PATH.
type arrivals struct {
	mu  sync.Mutex
	all []string
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := "nobody"
	if len(r.TLS.PeerCertificates) > 0 {
		user = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	if who := identity.From(r.Context()); who != nil {
		user = who.Name
	}
	_, _ = io.Copy(io.Discard, r.Body) // what follows it are trailers
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Berth") || name == "Authorization" {
			user += " with " + name
		}
	}
	arrived := user + " " + r.URL.EscapedPath()
	a.mu.Lock()
	a.all = append(a.all, arrived)
	a.mu.Unlock()
	_, _ = io.WriteString(w, arrived)
}

// take returns the requests that have arrived since it was last called.
func (a *arrivals) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// serveProcess serves a gateway in front of a space's process. The users eve and bob of the space are known by the tokens of-eve and of-bob.
func serveProcess(t *testing.T) (address string, process *arrivals) {
	t.Helper()
	dir, process := t.TempDir(), &arrivals{}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- dedicated.Serve(ctx, dir, process, http.NotFoundHandler(), klog.Background()) }()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("of-eve,eve,u1,,mine\nof-bob,bob,u2,,mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clients, err := authn.New(authn.Files{Tokens: tokens}, func(string) bool { return true }, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), "port")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Serving("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := dedicated.NewRemote("mine", "", dedicated.Sockets(dir), nil, nil, klog.Background()).Handler()
	own := func(space string) string { return space }
	server := gateway.Serve(listener, certificate.Get, &gateway.Router{
		Lookup: func(string) http.Handler { return handler }, TenantOf: own, Identify: clients.Identify,
		Verify:  func(_ string, r *http.Request) (*http.Request, bool, error) { return r, false, nil },
		Limiter: gateway.NewLimiter(gateway.LimiterConfig{TenantOf: own}),
	}, logr.Discard())
	t.Cleanup(func() {
		server.Stop(context.WithoutCancel(t.Context()))
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), process
}

func dialGateway(t *testing.T, address, protocol string) net.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// say sends what it gets by HTTP/1.1, and returns the status codes of the responses until the server closes the connection.
func say(t *testing.T, address, text string) (codes []int) {
	t.Helper()
	conn := dialGateway(t, address, "http/1.1")
	// The last request has the server close the connection, if nothing before does.
	go func() { _, _ = io.WriteString(conn, text+"GET /livez HTTP/1.1\r\nHost: berth\r\n\r\n") }()
	from := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			return codes
		}
		codes = append(codes, resp.StatusCode)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
			_ = resp.Body.Close()
			return codes
		}
		_ = resp.Body.Close()
	}
}

// inOrder fails unless the process answers another user what he asked for.
func inOrder(t *testing.T, reason, address string, process *arrivals) {
	t.Helper()
	for i := range 3 {
		conn := dialGateway(t, address, "http/1.1")
		path := fmt.Sprintf("/api/v1/of-bob-%d", i)
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-bob\r\nConnection: close\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: another user afterwards: %v", reason, err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "bob "+path {
			t.Errorf("%s: another user who asks %s gets %q", reason, path, body)
		}
	}
	process.take()
}

// S5, S7: whatever the client sends, the process of a space gets the requests that the gateway has read, and who the client is from the
// gateway alone.
func TestHostileRequestsAreNotSmuggledToAProcess(t *testing.T) {
	address, process := serveProcess(t)
	inOrder(t, "before", address, process)
	root := base64.StdEncoding.EncodeToString([]byte(`{"Name":"root","Groups":["system:masters"],"Tenant":"system","Proof":"Certificate"}`))
	forged := "X-Berth-Identity: " + root + "\r\n"
	smuggled := "GET /spaces/mine/smuggled HTTP/1.1\r\nHost: berth\r\n" + forged + "\r\n"
	const begin = " /api/v1/one HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(smuggled))
	for reason, text := range map[string]string{
		"both lengths":                    "POST" + begin + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"both lengths, in another order":  "POST" + begin + "Transfer-Encoding: chunked\r\n" + length + "\r\n0\r\n\r\n" + smuggled,
		"a space before the colon":        "POST" + begin + "Content-Length: 5\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a tab before the value":          "POST" + begin + "Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a vertical tab":                  "POST" + begin + "Content-Length: 5\r\nTransfer-Encoding:\vchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"an unknown encoding":             "POST" + begin + "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two encodings":                   "POST" + begin + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled,
		"an encoding twice":               "POST" + begin + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths":                     "POST" + begin + "Content-Length: 0\r\n" + length + "\r\n" + smuggled,
		"a list of lengths":               "POST" + begin + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n", len(smuggled)) + smuggled,
		"a length with a sign":            "POST" + begin + "Content-Length: +0\r\n\r\n" + smuggled,
		"a negative length":               "POST" + begin + "Content-Length: -1\r\n\r\n" + smuggled,
		"the length of a request":         "GET" + begin + length + "\r\n" + smuggled,
		"a chunk that is too long":        "POST" + begin + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + smuggled,
		"a chunk with a sign":             "POST" + begin + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + smuggled,
		"a chunk with a prefix":           "POST" + begin + "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + smuggled,
		"a chunk with an extension":       "POST" + begin + "Transfer-Encoding: chunked\r\n\r\n0;a=\"\n\r\n\r\n\"\r\n\r\n" + smuggled,
		"a chunk that ends late":          "POST" + begin + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n" + smuggled,
		"trailers":                        "POST" + begin + "Transfer-Encoding: chunked\r\nTrailer: X-Berth-Identity\r\n\r\n0\r\n" + forged + "\r\n",
		"chunks of HTTP/1.0":              "POST /api/v1/one HTTP/1.0\r\nAuthorization: Bearer of-eve\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a continued line":                "GET" + begin + "X-A: b\r\n " + forged + "\r\n",
		"a line that ends by a line feed": "GET" + begin + "X-A: b\n" + forged + "\r\n",
		"a line that ends by a return":    "GET" + begin + "X-A: b\r" + forged + "\r\n",
		"a NUL":                           "GET" + begin + "X-A: b\x00" + forged + "\r\n",
		"a forged identity":               "GET" + begin + forged + "X-Berth-Client-Certificate: x\r\n\r\n",
		"in lower case, twice":            "GET" + begin + strings.ToLower(forged[:16]) + forged[16:] + forged + "\r\n",
		"a name with a space":             "GET" + begin + "X-Berth-Identity : " + root + "\r\n\r\n",
		"an identity that is stripped":    "GET" + begin + forged + "Connection: X-Berth-Identity, X-Berth-Client-Certificate\r\n\r\n",
		"a credential that is stripped":   "GET" + begin + "Connection: close, Authorization\r\n\r\n",
		"stripped by a second header":     "GET" + begin + "Connection: keep-alive\r\nConnection: x-berth-identity\r\nProxy-Connection: x-berth-identity\r\n\r\n",
		"two hosts":                       "GET" + begin + "Host: other\r\n\r\n",
		"a host with a space":             "GET /api/v1/one HTTP/1.1\r\nHost: berth other\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"no host":                         "GET /api/v1/one HTTP/1.1\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"an absolute target":              "GET https://other.example/api/v1/one HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"an absolute target with a user":  "GET http://root:x@unix/api/v1/one HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"a target without a slash":        "GET api/v1/one HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"an authority":                    "CONNECT unix:80 HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"an asterisk":                     "OPTIONS * HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"escaped line ends in the path":   "GET /api/v1/one%20HTTP/1.1%0d%0aX-Berth-Identity:%20" + root + "%0d%0a%0d%0aGET%20/smuggled HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"line ends in the path":           "GET /api/v1/one\rX-Berth-Identity: root HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"line ends in the query":          "GET /api/v1/one?a=\r\nX-Berth-Identity: " + root + " HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"line ends in the method":         "GET\r\n /api/v1/one HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n",
		"an upgrade to HTTP/2":            "GET" + begin + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n" + smuggled,
		"an upgrade that is declined":     "GET" + begin + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + smuggled,
		"HTTP/2 without an upgrade":       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + smuggled,
		"a body that is awaited":          "POST" + begin + "Expect: 100-continue\r\n" + length + "\r\n" + smuggled,
	} {
		codes := say(t, address, text)
		for _, arrived := range process.take() {
			if !strings.HasPrefix(arrived, "eve /api/v1/one") && arrived != "eve /" && arrived != "eve *" && arrived != "eve " {
				t.Errorf("%s: %q arrives at the process; the client gets %v", reason, arrived, codes)
			}
		}
		for _, code := range codes {
			if code == http.StatusSwitchingProtocols {
				t.Errorf("%s: the client gets %v", reason, codes)
			}
		}
		inOrder(t, reason, address, process)
	}
}

// S5, S7: the same by HTTP/2, of which the gateway makes HTTP/1.1 for the process.
func TestHostileRequestsByHTTP2AreNotSmuggledToAProcess(t *testing.T) {
	address, process := serveProcess(t)
	const smuggled = "GET /spaces/mine/smuggled HTTP/1.1\r\nHost: berth\r\nX-Berth-Identity: e30=\r\n\r\n"
	for reason, c := range map[string]struct {
		method, path string
		fields       [][2]string
		body         string
	}{
		"an encoding":                     {"POST", "/api/v1/one", [][2]string{{"transfer-encoding", "chunked"}}, "0\r\n\r\n" + smuggled},
		"a length that is too short":      {"POST", "/api/v1/one", [][2]string{{"content-length", "0"}}, smuggled},
		"a length that is too long":       {"POST", "/api/v1/one", [][2]string{{"content-length", "1000"}}, smuggled},
		"two lengths":                     {"POST", "/api/v1/one", [][2]string{{"content-length", "0"}, {"content-length", fmt.Sprint(len(smuggled))}}, smuggled},
		"a body without a length":         {"GET", "/api/v1/one", nil, smuggled},
		"line ends in a value":            {"GET", "/api/v1/one", [][2]string{{"x-a", "b\r\nX-Berth-Identity: e30="}}, ""},
		"line ends in a name":             {"GET", "/api/v1/one", [][2]string{{"x-a: b\r\nx-berth-identity", "e30="}}, ""},
		"line ends in the path":           {"GET", "/api/v1/one HTTP/1.1\r\nX-Berth-Identity: e30=\r\n\r\nGET /smuggled", nil, ""},
		"line ends in the method":         {"GET /smuggled HTTP/1.1\r\nX-A:", "/api/v1/one", nil, ""},
		"a space in the path":             {"GET", "/api/v1/one /smuggled", nil, ""},
		"a path without a slash":          {"GET", "api/v1/one", nil, ""},
		"an absolute path":                {"GET", "https://other.example/api/v1/one", nil, ""},
		"a host beside the authority":     {"GET", "/api/v1/one", [][2]string{{"host", "other"}}, ""},
		"a connection":                    {"GET", "/api/v1/one", [][2]string{{"connection", "x-berth-identity"}}, ""},
		"an upgrade":                      {"GET", "/api/v1/one", [][2]string{{"connection", "upgrade"}, {"upgrade", "h2c"}}, smuggled},
		"a forged identity":               {"GET", "/api/v1/one", [][2]string{{"x-berth-identity", "e30="}, {"x-berth-client-certificate", "x"}}, ""},
		"in upper case":                   {"GET", "/api/v1/one", [][2]string{{"X-Berth-Identity", "e30="}}, ""},
		"a second path":                   {"GET", "/api/v1/one", [][2]string{{":path", "/smuggled"}}, ""},
		"trailers":                        {"POST", "/api/v1/one", [][2]string{{"trailer", "X-Berth-Identity"}}, "x"},
		"an upgrade by extended CONNECT":  {"CONNECT", "/api/v1/one", [][2]string{{":protocol", "websocket"}}, smuggled},
		"an escaped line end in the path": {"GET", "/api/v1/one%0d%0aX-Berth-Identity:%20e30=", nil, ""},
	} {
		conn := dialGateway(t, address, "h2")
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		framer := http2.NewFramer(conn, conn)
		framer.AllowIllegalWrites = true
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		write := func(name, value string) { _ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value}) }
		write(":method", c.method)
		write(":scheme", "https")
		write(":authority", "berth")
		write(":path", c.path)
		for _, pseudo := range []bool{true, false} {
			if !pseudo {
				write("authorization", "Bearer of-eve")
			}
			for _, field := range c.fields {
				if strings.HasPrefix(field[0], ":") == pseudo {
					write(field[0], field[1])
				}
			}
		}
		_ = framer.WriteSettings()
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: c.body == ""})
		if c.body != "" {
			_ = framer.WriteData(1, reason != "trailers", []byte(c.body))
		}
		if reason == "trailers" {
			block.Reset()
			write("x-berth-identity", "e30=")
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}
		for answered := false; !answered; {
			frame, err := framer.ReadFrame()
			if err != nil {
				break // the server refuses the connection
			}
			switch frame := frame.(type) {
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				answered = true
			case *http2.HeadersFrame, *http2.DataFrame:
				answered = frame.Header().Flags.Has(http2.FlagDataEndStream)
			}
		}
		_ = conn.Close()
		for _, arrived := range process.take() {
			if !strings.HasPrefix(arrived, "eve /api/v1/one") && arrived != "eve /" {
				t.Errorf("%s: %q arrives at the process", reason, arrived)
			}
		}
		inOrder(t, reason, address, process)
	}
}
