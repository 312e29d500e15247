// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/shard"
)

// hostBehind is a kubeconfig of the shared host behind a proxy, which answers in
// its place what a test wants it to.
func hostBehind(t *testing.T, answer func(w http.ResponseWriter, r *http.Request) (answered bool)) string {
	t.Helper()
	config := sharedBerth(t).host(t).config
	server := must(url.Parse(config.Host))(t)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     must(rest.TransportFor(config))(t),
		FlushInterval: -1,
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	path := filepath.Join(t.TempDir(), "host.kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"host": {Server: front.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"host": {Cluster: "host"}},
		CurrentContext: "host",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// B4: berth is ready when it reaches its host and can answer, however long its
// spaces take to start.
func TestBerthIsReadyBeforeItsSpacesAre(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	host := hostBehind(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "berth-unhurried") {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return false
	})
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.launch(t, "--host-kubeconfig", host, "--space", "unhurried")
	eventually(t, func() error {
		resp, err := b.socket().Get("http://berth/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("berth answers %s", resp.Status)
		}
		return nil
	})
	if state, message := b.stateOf(t, "unhurried"); state != shard.ReasonStarting {
		t.Errorf("the space is %s: %s", state, message)
	}
	if out := b.output(); strings.Contains(out, "serves at") {
		t.Errorf("berth says of the space, which does not run yet:\n%s", out)
	}
	close(release)
	eventually(t, func() error {
		if out := b.output(); !strings.Contains(out, "Space unhurried is ready") || !strings.Contains(out, " serves at ") {
			return fmt.Errorf("berth says:\n%s", out)
		}
		return nil
	})
	if _, err := b.space(t, "unhurried").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
