// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// channels is a platform with the processes of two spaces, each of which answers with who asked, and for what space.
type channels struct {
	ca   *pki.CA
	at   map[string]dedicated.Addresses
	dirs map[string]string
}

func startChannels(t *testing.T, commands http.Handler) *channels {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "berth-dedicated")
	if err != nil {
		t.Fatal(err)
	}
	c := &channels{ca: ca, at: map[string]dedicated.Addresses{}, dirs: map[string]string{}}
	for _, space := range []string{"mine", "theirs"} {
		dir := t.TempDir()
		pair, err := ca.Server(dedicated.ServerName(space))
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{dedicated.CertFile: pair.Cert, dedicated.KeyFile: pair.Key, dedicated.ClientsFile: ca.PEM()} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				user = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			if who := identity.From(r.Context()); who != nil {
				user = who.Name
			}
			if token := r.Header.Get("Authorization"); token != "" {
				user += " with " + token
			}
			fmt.Fprintf(w, "%s asks %s", user, space)
		})
		c.dirs[space], c.at[space] = dir, dedicated.Addresses{API: freeAddress(t), Commands: freeAddress(t)}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- dedicated.ServeTLS(ctx, c.at[space], dedicated.ServerTLS(dir), api, commands, klog.Background())
		}()
		t.Cleanup(func() {
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// process is how the platform reaches a space's process at the address of another's, or of its own.
func (c *channels) process(space, at string, certificate func() (tls.Certificate, error)) *dedicated.Process {
	config := dedicated.ClientTLS(space, c.ca.PEM, certificate)
	locate := func() (dedicated.Addresses, error) { return c.at[at], nil }
	return dedicated.NewRemote(space, "", dedicated.Remote(locate, config), nil, nil, klog.Background())
}

func (c *channels) platform() (tls.Certificate, error) {
	pair, err := c.ca.Client(dedicated.PlatformUser(), nil)
	if err != nil {
		return tls.Certificate{}, err
	}
	return pair.TLS()
}

// hostToken has the audience of Berth, and no good signature.
const hostToken = "e30.eyJhdWQiOlsiYmVydGguZGV2Il19.x"

// ask sends a request through the handler of a process, and returns what comes back once the process serves.
func ask(t *testing.T, p *dedicated.Process, r *http.Request) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// S3: only the platform reaches the process of a space, which nobody can take the place of; and who a request is from, the
// process learns from the platform alone.
func TestHostileClientsAndServersAreRefusedOnTheChannel(t *testing.T) {
	c := startChannels(t, http.NotFoundHandler())
	mine := c.process("mine", "mine", c.platform)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // until it listens
		code, body := ask(t, mine, httptest.NewRequest(http.MethodGet, "/", nil))
		if code == http.StatusOK && body == "nobody asks mine" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the platform gets %d %q", code, body)
		}
	}
	spaces, err := pki.OpenCA(t.TempDir(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	user, err := spaces.Client("eve", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := user.TLS()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: nil}
	r.Header.Set("X-Berth-Client-Certificate", "forged")
	r.Header.Set("Connection", "X-Berth-Client-Certificate")
	if code, body := ask(t, mine, r); code != http.StatusOK || body != "nobody asks mine" {
		t.Errorf("with a header of the client's own: %d %q", code, body)
	}
	robot := "system:serviceaccount:tenant-system:robot"
	forged := base64.StdEncoding.EncodeToString([]byte(`{"Name": "forged", "Proof": "HostServiceAccount"}`))
	for _, hop := range []string{"X-Berth-Identity", "close", "upgrade"} {
		for reason, test := range map[string]struct {
			ctx         context.Context
			token, want string
		}{
			"a ServiceAccount of the host (O9)":    {identity.With(t.Context(), &identity.Identity{Name: robot, Proof: identity.HostServiceAccount}), "", robot + " asks mine"},
			"one with its token":                   {identity.With(t.Context(), &identity.Identity{Name: robot, Proof: identity.HostServiceAccount}), hostToken, robot + " asks mine"},
			"a header of the client's own":         {t.Context(), "", "nobody asks mine"},
			"a token of the host that proves none": {t.Context(), hostToken, "nobody asks mine"},
			"another token":                        {t.Context(), "of-the-space", "nobody with Bearer of-the-space asks mine"},
		} {
			r := httptest.NewRequestWithContext(test.ctx, http.MethodGet, "/", nil)
			r.Header.Set("X-Berth-Identity", forged)
			r.Header.Add("X-Berth-Identity", forged)
			r.Header.Set("Connection", hop)
			if test.token != "" {
				r.Header.Set("Authorization", "Bearer "+test.token)
			}
			if code, body := ask(t, mine, r); code != http.StatusOK || body != test.want {
				t.Errorf("%s, Connection: %s: %d %q", reason, hop, code, body)
			}
		}
	}
	processes := func() (tls.Certificate, error) { // what who took over another space's process has
		return tls.LoadX509KeyPair(filepath.Join(c.dirs["theirs"], dedicated.CertFile), filepath.Join(c.dirs["theirs"], dedicated.KeyFile))
	}
	other := func() (tls.Certificate, error) {
		pair, err := c.ca.Client("somebody", nil)
		if err != nil {
			return tls.Certificate{}, err
		}
		return pair.TLS()
	}
	for reason, p := range map[string]*dedicated.Process{
		"a process that passes for another":           c.process("mine", "theirs", c.platform),
		"a process that passes for the platform":      c.process("mine", "mine", processes),
		"a tenant with a certificate of its space":    c.process("mine", "mine", func() (tls.Certificate, error) { return pair, nil }),
		"a client of the CA that is not the platform": c.process("mine", "mine", other),
		"somebody without a certificate":              c.process("mine", "mine", func() (tls.Certificate, error) { return tls.Certificate{}, nil }),
	} {
		if code, body := ask(t, p, httptest.NewRequest(http.MethodGet, "/", nil)); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %q", reason, code, body)
		}
		if _, err := p.State(t.Context()); err == nil {
			t.Errorf("%s: gives commands", reason)
		}
	}
	// The certificate may be replaced at any time.
	renewed, err := c.ca.Server(dedicated.ServerName("mine"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{dedicated.CertFile: renewed.Cert, dedicated.KeyFile: renewed.Key} {
		if err := pki.WriteFile(filepath.Join(c.dirs["mine"], name), data); err != nil {
			t.Fatal(err)
		}
	}
	if code, body := ask(t, c.process("mine", "mine", c.platform), httptest.NewRequest(http.MethodGet, "/", nil)); code != http.StatusOK {
		t.Errorf("after a renewal: %d %q", code, body)
	}
}

// D1, S3: a store arrives whole or not at all, and is no larger than it may be.
func TestAStoreThatDoesNotArriveWholeIsRefused(t *testing.T) {
	store := bytes.Repeat([]byte("page"), 4096)
	source := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(source, store, 0o600); err != nil {
		t.Fatal(err)
	}
	_, size, sum, err := dedicated.OpenSummed(source)
	if err != nil {
		t.Fatal(err)
	}
	for reason, test := range map[string]struct {
		body   []byte
		length int64
		sum    string
		fails  string
	}{
		"whole":               {store, size, sum, ""},
		"a byte is another":   {append([]byte("P"), store[1:]...), size, sum, dedicated.ErrChecksum.Error()},
		"it is cut off":       {store[:100], size, sum, "EOF"},
		"the sum is missing":  {store, size, "", dedicated.ErrChecksum.Error()},
		"it is too large":     {append(store, 0), size + 1, sum, "at most"},
		"its size is unknown": {store, -1, sum, "doesn't say"},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			mux := http.NewServeMux()
			mux.HandleFunc("GET "+dedicated.StorePath, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(dedicated.ChecksumHeader, test.sum)
				if test.length >= 0 {
					w.Header().Set("Content-Length", strconv.FormatInt(test.length, 10))
				}
				_, _ = w.Write(test.body)
				w.(http.Flusher).Flush()
			})
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- dedicated.Serve(ctx, dir, http.NotFoundHandler(), mux, klog.Background()) }()
			defer func() {
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			}()
			p := dedicated.NewRemote("mine", "", dedicated.Sockets(dir), nil, nil, klog.Background())
			to := filepath.Join(t.TempDir(), "copy.db")
			var err error
			for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) { // until it listens
				if err = p.CopyStore(t.Context(), to, atMost(size)); !errors.Is(err, control.ErrNotRunning) {
					break
				}
			}
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("the copy: %v, want %q", err, test.fails)
			}
			if got, err := os.ReadFile(to); test.fails == "" && (err != nil || !bytes.Equal(got, store)) || test.fails != "" && err == nil {
				t.Errorf("there is a file of %d bytes (%v)", len(got), err)
			}
		})
	}
	if err := dedicated.Receive(io.LimitReader(bytes.NewReader(store), size), size, sum, source); !errors.Is(err, os.ErrExist) {
		t.Errorf("a store in the place of another: %v", err)
	}
}

// atMost admits copies of stores up to a size.
func atMost(most int64) func(size int64) (end func(), err error) {
	return func(size int64) (func(), error) {
		if size > most {
			return nil, fmt.Errorf("at most %d bytes are possible", most)
		}
		return func() {}, nil
	}
}
