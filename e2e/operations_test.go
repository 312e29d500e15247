// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// fetch returns what a URL answers.
func fetch(t *testing.T, client *http.Client, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// socket is a client of the control socket.
func (b *berth) socket() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.dir, "control.sock"))
	}}}
}

// X4: the platform's admins see health and metrics, on the socket and on a port
// of their own; tenants see neither.
func TestHealthAndMetricsAreThePlatformsOwn(t *testing.T) {
	t.Parallel()
	b := start(t, "--metrics-listen", "127.0.0.1:0")
	found := regexp.MustCompile(`Metrics and health are at (http://\S+)/metrics`).FindStringSubmatch(b.output())
	if found == nil {
		t.Fatalf("berth does not say where its metrics are:\n%s", b.output())
	}
	socket := b.socket()
	demo := b.demo(t)
	demo.kubectl(t, "get", "pods", "-A")
	for base, client := range map[string]*http.Client{found[1]: http.DefaultClient, "http://berth": socket} {
		for _, path := range []string{"/livez", "/readyz", "/livez/ping", "/readyz/host", "/readyz/certificates"} {
			if code, body := fetch(t, client, base+path); code != http.StatusOK || body != "ok" {
				t.Errorf("%s%s: %d %s", base, path, code, body)
			}
		}
		if _, body := fetch(t, client, base+"/readyz?verbose"); !strings.Contains(body, "[+]host ok") || !strings.Contains(body, "readyz check passed") {
			t.Errorf("%s/readyz?verbose: %s", base, body)
		}
		_, text := fetch(t, client, base+"/metrics")
		for _, want := range []string{
			`berth_spaces{state="awake"} 1`, `berth_space_ready{space="demo"} 1`, `berth_space_wakes_total{result="awake",space="demo"} 1`,
			`berth_space_requests_total{code="2xx",space="demo",verb="read"}`, `berth_space_store_revision{space="demo"}`,
			`berth_space_host_objects{kind="services",space="demo"}`, `berth_certificate_expiry_timestamp_seconds{certificate="serving"}`,
			"process_resident_memory_bytes", "go_goroutines",
		} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("%s/metrics lacks %s", base, want)
			}
		}
	}
	if code, body := fetch(t, http.DefaultClient, found[1]+"/spaces"); code != http.StatusNotFound {
		t.Errorf("the port for metrics serves commands: %d %s", code, body)
	}

	// What a tenant can reach of it.
	rest := demo.CoreV1().RESTClient()
	gateway := strings.TrimSuffix(demo.config.Host, "/spaces/demo")
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // whom it talks to is not what is tested
	}}}
	for _, path := range []string{"/metrics", "/spaces/metrics", "/spaces/system/metrics"} {
		if code, body := fetch(t, stranger, gateway+path); code == http.StatusOK || strings.Contains(body, "berth_") {
			t.Errorf("a stranger gets %s: %d", path, code)
		}
	}
	if data, err := rest.Get().AbsPath("/metrics").DoRaw(t.Context()); err == nil {
		t.Errorf("a tenant with all rights in its space gets the process's metrics: %.300s", data)
	}
}

// X4, T7: each space answers for itself as a stock API server does: health and
// version for any of its accounts, the rest for those who may. S19: who has no
// account of it learns nothing, not even that it exists.
func TestASpacesHealthIsAsUpstreamServesIt(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	token := demo.defaultToken(t)
	account := &http.Client{Transport: must(rest.TransportFor(withToken(demo.config, token)))(t)}
	stranger := &http.Client{Transport: must(rest.TransportFor(rest.AnonymousClientConfig(demo.config)))(t)}
	gateway := strings.TrimSuffix(demo.config.Host, "/demo")
	_, nobody := fetch(t, stranger, gateway+"/nobody/api")
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/livez": {200, "ok"}, "/readyz": {200, "ok"}, "/healthz": {200, "ok"}, "/version": {200, "gitVersion"},
		"/livez?verbose": {200, "livez check passed"}, "/readyz?verbose": {200, "[+]etcd ok"}, "/readyz?exclude=etcd": {200, "ok"},
		"/readyz/etcd": {403, "system:serviceaccount"}, "/api/v1/namespaces": {403, "system:serviceaccount"}, "/metrics": {403, "system:serviceaccount"},
	} {
		if code, body := fetch(t, account, demo.config.Host+path); code != want.code || !strings.Contains(body, want.says) {
			t.Errorf("%s: %d %s, want %d and %q", path, code, body, want.code, want.says)
		}
		if code, body := fetch(t, stranger, demo.config.Host+path); code != http.StatusUnauthorized || body != nobody {
			t.Errorf("a stranger gets %s: %d %s", path, code, body)
		}
	}
	if body, err := demo.CoreV1().RESTClient().Get().AbsPath("/readyz/etcd").DoRaw(t.Context()); err != nil || string(body) != "ok" {
		t.Errorf("one check: %s (%v)", body, err)
	}
}

// X4: a kubeconfig whose certificate nears its end is renewed, by the command
// that prints it and by a start, and what was renewed works.
func TestAnOldKubeconfigIsRenewed(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "demo,other")
	for _, name := range []string{"demo", "host"} {
		age(t, b.dir, name)
		out, errors, code := runBerth(t, "kubeconfig", name, "--data-dir", b.dir)
		if code != 0 {
			t.Fatalf("berth kubeconfig %s: %s", name, errors)
		}
		checkFresh(t, name, []byte(out))
		if file, err := os.ReadFile(filepath.Join(b.dir, name+".kubeconfig")); err != nil || string(file) != out {
			t.Errorf("%s: the file is not what was printed (%v)", name, err)
		}
		if user := must(whoAmI(t, b.space(t, name)))(t); !slices.Contains(user.Groups, "berth:admins") || slices.Contains(user.Groups, "system:masters") {
			t.Errorf("%s: renewed, it is for %s of %v", name, user.Username, user.Groups)
		}
		if _, err := b.space(t, name).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.stop(t, os.Interrupt)
	age(t, b.dir, "other")
	b.up(t) // without it: it sleeps
	eventually(t, func() error {
		data, err := os.ReadFile(filepath.Join(b.dir, "other.kubeconfig"))
		if err == nil && bytes.Equal(data, nil) {
			err = fmt.Errorf("it is empty")
		}
		if err == nil && remaining(t, data) < 23*time.Hour {
			err = fmt.Errorf("it is not renewed")
		}
		return err
	})
	if _, err := b.space(t, "other").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// age replaces a kubeconfig's certificate by one of 20 hours before, as Berth once issued them.
func age(t *testing.T, dir, name string) {
	t.Helper()
	keys := filepath.Join(dir, "spaces", name, "pki")
	if name == "host" {
		keys = filepath.Join(dir, "host", "pki")
	}
	ca, err := pki.OpenCAWithClock(keys, name, clocktesting.NewFakePassiveClock(time.Now().Add(-20*time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+".kubeconfig")
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData = pair.Cert, pair.Key
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

func checkFresh(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	if left := remaining(t, kubeconfig); left < 23*time.Hour {
		t.Errorf("%s: its certificate ends in %s", name, left)
	}
}

// remaining is how long a kubeconfig's certificate is good.
func remaining(t *testing.T, kubeconfig []byte) time.Duration {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(pair.Leaf.NotAfter)
}
