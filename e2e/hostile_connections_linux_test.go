// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// attackers is how many connections one tenant opens.
	attackers = 10_000
	// ownFiles are files that a process has open besides connections.
	ownFiles = 1000
	// attackTimeout is how long a client of an attack waits for anything.
	attackTimeout = time.Minute
)

// attackOfTenant starts a berth with little memory and the tenants solar, whose user eve attacks with the token of-eve, and lunar, whose user
// bob, with a certificate, must be served until the test ends: by a connection for each request, and by a watch.
func attackOfTenant(t *testing.T) (b *berth, m *memory, solar *cluster) {
	t.Helper()
	dir, ca := t.TempDir(), newClientCA(t)
	tokens, cas := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "ca.crt")
	for path, data := range map[string]string{tokens: "of-eve,eve,u1,,solar\n", cas: string(ca.pem())} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b = newBerth(filepath.Join(dir, "data"))
	b.by = limitedTo(t, attackedLimit)
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.up(t, "--operator", "--token-auth-file", tokens, "--client-ca-file", cas)
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
		b.space(t, tenant).kubectl(t, "create", "clusterrolebinding", "all", "--clusterrole=edit", "--user=eve", "--user=lunar:bob")
	}
	m = measure(t, b.process)
	solar = b.space(t, "solar")
	bob := ca.client(t, solar, pkix.Name{CommonName: "lunar:bob"})
	eventually(t, func() error {
		_, err := bob.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var answers int
	var worst time.Duration
	t.Cleanup(func() {
		cancel()
		group.Wait()
		t.Logf("the other tenant got %d answers; the slowest took %s; the process took up to %d MiB", answers, worst, m.most.Load()>>20)
	})
	watch, err := bob.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	group.Go(func() {
		defer watch.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-watch.ResultChan():
				if !open && ctx.Err() == nil {
					t.Error("the other tenant's watch has ended")
					return
				}
			}
		}
	})
	group.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			config := rest.CopyConfig(bob.config)
			// A function of its own has it use a connection of its own.
			config.Dial = (&net.Dialer{}).DialContext
			client, err := rest.HTTPClientFor(config)
			if err == nil {
				var again *kubernetes.Clientset
				if again, err = kubernetes.NewForConfigAndClient(config, client); err == nil {
					_, err = again.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
				}
				client.CloseIdleConnections()
			}
			if worst = max(worst, time.Since(began)); err != nil && ctx.Err() == nil {
				t.Errorf("after %d answers, the other tenant gets %v", answers, err)
				return
			}
			answers++
		}
	})
	return b, m, solar
}

// dialEndpoint connects to the API endpoint by TLS.
func dialEndpoint(of *cluster) (net.Conn, error) {
	config, err := rest.TLSConfigFor(rest.AnonymousClientConfig(of.config))
	if err != nil {
		return nil, err
	}
	config.NextProtos, config.CurvePreferences = []string{"http/1.1"}, []tls.CurveID{tls.X25519} // the cheapest for this process
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: attackTimeout}, "tcp", strings.TrimPrefix(of.endpoint(), "https://"), config)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(attackTimeout))
}

// checkAttacked fails the test if the process did not survive, or took too much.
func checkAttacked(t *testing.T, b *berth, m *memory) {
	t.Helper()
	select {
	case <-b.done:
		t.Fatalf("the process was ended: %s\n%s", b.state, b.output())
	default:
	}
	if _, err := b.space(t, "lunar").CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "after-"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("after the attack, the other tenant gets %v", err)
	}
	if most := m.most.Load(); most > attackedMost {
		t.Errorf("the process took up to %d MiB", most>>20)
	}
}

// S7, L3: 10,000 connections of one tenant, each of which has been used. Before, it had all connections of the process with fewer.
func TestHostileConnectionsOfATenantLeaveOthersTheirs(t *testing.T) {
	b, m, solar := attackOfTenant(t)
	n := attackers
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if files.Cur = files.Max; unix.Setrlimit(unix.RLIMIT_NOFILE, &files) != nil || files.Cur < attackers+ownFiles {
		n = max(0, int(min(files.Cur, attackers+ownFiles))-ownFiles)
		t.Logf("only %d connections: this process may have %d files open", n, files.Cur)
	}
	began := time.Now()
	var next, served, lost atomic.Int64
	var workers sync.WaitGroup
	conns := make([]net.Conn, n)
	for range 16 {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				conn, err := dialEndpoint(solar)
				if err != nil {
					lost.Add(1) // its place has gone to the next ones
					continue
				}
				conns[i] = conn
				_, _ = io.WriteString(conn, "GET /api/v1/namespaces/default/configmaps?limit=1 HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer of-eve\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					lost.Add(1)
					continue
				}
				if _, err := io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode == http.StatusOK {
					served.Add(1)
				}
				_ = resp.Body.Close()
			}
		})
	}
	workers.Wait()
	t.Cleanup(func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close()
			}
		}
	})
	t.Logf("in %s, of %d connections, %d were served, and %d were closed", time.Since(began), n, served.Load(), lost.Load())
	if served.Load() < int64(n)/10 {
		t.Errorf("only %d of %d connections were served", served.Load(), n)
	}
	checkAttacked(t, b, m)
}

// S7, L3: bodies of a gibibyte, many at once, by a client that is known and by one that is not.
func TestHostileBodiesOfATenantAreRefused(t *testing.T) {
	const gibibyte = 1 << 30
	b, m, solar := attackOfTenant(t)
	upload := func(token, path string, chunked bool) (code int, sent int64, err error) {
		conn, err := dialEndpoint(solar)
		if err != nil {
			return 0, 0, err
		}
		defer conn.Close()
		length, body := fmt.Sprintf("Content-Length: %d", gibibyte), io.Writer(conn)
		if chunked {
			length, body = "Transfer-Encoding: chunked", httputil.NewChunkedWriter(conn)
		}
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: berth\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", path, token, length)
		if err != nil {
			return 0, 0, err
		}
		answered := make(chan int, 1)
		go func() {
			code := 0
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				code = resp.StatusCode
				_ = resp.Body.Close()
			}
			answered <- code
		}()
		part := []byte(strings.Repeat("x", 64<<10))
		_, err = io.WriteString(body, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"huge"},"data":{"x":"`)
		for sent < gibibyte && err == nil {
			var n int
			n, err = body.Write(part)
			sent += int64(n)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, sent, fmt.Errorf("the connection stays open: %w", err)
		}
		return <-answered, sent, nil
	}
	const most = 64 << 20 // with what the system buffers
	for path, want := range map[string]map[string]int{
		"/api/v1/namespaces/default/configmaps":                                    {"of-eve": http.StatusRequestEntityTooLarge, "of-nobody": http.StatusUnauthorized},
		"/api/v1/tenants/solar/namespaces/default/configmaps":                      {"of-eve": http.StatusRequestEntityTooLarge, "of-nobody": http.StatusUnauthorized},
		"/api/v1/tenants/nobody/namespaces/default/configmaps":                     {"of-eve": http.StatusForbidden, "of-nobody": http.StatusUnauthorized},
		"/api/v1/namespaces/default/configmaps?watch=true":                         {"of-eve": http.StatusRequestEntityTooLarge},
		"/api/v1/namespaces/default/pods/missing/exec?command=x":                   {"of-eve": http.StatusNotFound},
		"/api/v1/namespaces/default/services/missing/proxy/x":                      {"of-eve": http.StatusServiceUnavailable},
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?fieldManager=x&x=": {"of-eve": http.StatusRequestEntityTooLarge},
	} {
		for token, code := range want {
			for _, chunked := range []bool{false, true} {
				got, sent, err := upload(token, path, chunked)
				t.Logf("%s with %s, chunked %t: %d after %d MiB", path, token, chunked, got, sent>>20)
				// The response may be lost when the connection is reset behind it.
				if err != nil || got != code && got != 0 || sent > most {
					t.Errorf("%s with %s, chunked %t: %d after %d MiB, %v; want %d", path, token, chunked, got, sent>>20, err, code)
				}
			}
		}
	}
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			got, sent, err := upload([]string{"of-eve", "of-eve", "of-nobody"}[i%3], "/api/v1/namespaces/default/configmaps", i%2 == 0)
			if err != nil || got == http.StatusCreated || sent > most {
				t.Errorf("of many at once: %d after %d MiB, %v", got, sent>>20, err)
			}
		})
	}
	group.Wait()
	checkAttacked(t, b, m)
}
