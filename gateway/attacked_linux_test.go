// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/testrace"
	"github.com/berth-dev/berth/vcluster/pki"
)

// attackedLimit ends a process that an attack makes grow, before the machine suffers: in bytes of data.
const attackedLimit = 3 << 30

// tokensOfClients are the clients that the attacked process knows by tokens. It also knows those with certificates of its CA.
const tokensOfClients = "of-eve,eve,u1,,solar\nof-mallory,mallory,u2,,solar\nof-trent,trent,u4,,solar\nof-peggy,peggy,u5,,solar\nof-bob,bob,u3,,lunar\n"

// attacked is a process with a gateway, in which clients are known by what the platform knows them by.
type attacked struct {
	address string // HOST:PORT
	pid     int
	ca      *pki.CA // of clients
	ended   chan struct{}
}

// startAttacked starts a process that is attacked, until the test ends.
func startAttacked(t *testing.T) *attacked {
	t.Helper()
	if testrace.Enabled {
		t.Skip("the race detector takes many times the memory that this test bounds")
	}
	dir := t.TempDir()
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), "clients")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"ca.crt": string(ca.PEM()), "tokens.csv": tokensOfClients} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackedEnv+"="+dir)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	alive, err := cmd.StdinPipe() // it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &attacked{pid: cmd.Process.Pid, ca: ca, ended: make(chan struct{})}
	address, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = cmd.Wait()
		close(a.ended)
	}()
	t.Cleanup(func() {
		_ = alive.Close()
		<-a.ended
		if t.Failed() {
			t.Logf("the process said %.4000s", complaints.String())
		}
	})
	if err != nil {
		t.Fatalf("the process serves nowhere: %v", err)
	}
	a.address = strings.TrimSpace(address)
	return a
}

// serveAttacked is the process that is attacked.
func serveAttacked(dir string) int {
	limitData(attackedLimit)
	debug.SetMemoryLimit(512 << 20) // as the processes of the platform do, so that what counts is what is in use
	err := func() error {
		clients, err := authn.New(authn.Files{ClientCA: filepath.Join(dir, "ca.crt"), Tokens: filepath.Join(dir, "tokens.csv")},
			func(tenant string) bool { return tenant == "solar" || tenant == "lunar" }, klog.Background())
		if err != nil {
			return err
		}
		ca, err := pki.OpenCA(filepath.Join(dir, "server"), "port")
		if err != nil {
			return err
		}
		certificate, err := ca.Serving("127.0.0.1")
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		own := func(space string) string { return space }
		server := gateway.Serve(elsewhere{listener}, certificate.Get, &gateway.Router{
			Lookup: lookupAttacked, TenantOf: own, Identify: clients.Identify,
			Verify:  func(_ string, r *http.Request) (*http.Request, bool, error) { return r, false, nil },
			Limiter: gateway.NewLimiter(gateway.LimiterConfig{TenantOf: own}),
			UserOf:  func(r *http.Request) user.Info { return &user.DefaultInfo{Name: identity.From(r.Context()).Name} },
		}, logr.Discard())
		fmt.Println(listener.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop(context.Background())
		return server.Err()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// lookupAttacked returns the handler of a space. It responds to a watch until the client leaves, and doesn't read its body. With ?hang,
// it goes on until the process ends, whether the client leaves or not. It sends ?bytes. It takes as much of a body as an API server.
func lookupAttacked(space string) http.Handler {
	if space != "solar" && space != "lunar" {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch n, _ := strconv.Atoi(query.Get("bytes")); {
		case query.Has("watch"):
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		case query.Has("hang"):
			select {}
		case n > 0:
			_, _ = io.CopyN(w, spaces{}, int64(n))
			return
		}
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 3<<20)); err != nil {
			code := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
}

// spaces reads as spaces without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// connect makes a TLS connection from an address of loopback. The process takes those from 127.0.0.2 and so on for other machines.
func (a *attacked) connect(from, protocol string, certificates ...tls.Certificate) (*tls.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: testTimeout}
	raw, err := dialer.Dial("tcp", a.address)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(testTimeout))
	conn := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{protocol}, Certificates: certificates, CurvePreferences: []tls.CurveID{tls.X25519},
	})
	if err := conn.Handshake(); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// serveVictim has a client of the tenant lunar use its space until the test ends: with a connection for each request, one for all requests,
// and one with a watch. Any failure is one of the test.
func (a *attacked) serveVictim(t *testing.T) {
	t.Helper()
	pair, err := a.ca.Client("lunar:bob", nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}}
	t.Cleanup(transport.CloseIdleConnections)
	kept := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(t.Context())
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.address+path, nil)
		if err != nil {
			return nil, err
		}
		resp, err := kept.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return resp, err
	}
	watch, err := get("/api/v1/pods?watch=1&resourceVersion=7")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var answers int
	var worst time.Duration
	t.Cleanup(func() {
		cancel()
		group.Wait()
		t.Logf("the other tenant got %d answers; the slowest two took %s", answers, worst)
	})
	group.Go(func() {
		defer watch.Body.Close()
		if _, err := io.Copy(io.Discard, watch.Body); ctx.Err() == nil {
			t.Errorf("the other tenant's watch ends: %v", err)
		}
	})
	group.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond) // this process must attack, too
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			began := time.Now()
			resp, err := get("/api/v1/pods")
			if err == nil {
				err = resp.Body.Close()
			}
			if err == nil && ctx.Err() == nil {
				var conn net.Conn
				if conn, err = a.connect("127.0.0.200", "http/1.1", certificate); err == nil {
					_, err = ask(conn, "", "/api/v1/pods")
					_ = conn.Close()
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("after %d answers, the other tenant gets %v", answers, err)
				return
			}
			worst = max(worst, time.Since(began))
			answers++
		}
	})
}

// soon is the deadline of a write that no one is expected to read.
func soon() time.Time { return time.Now().Add(2 * time.Second) }
