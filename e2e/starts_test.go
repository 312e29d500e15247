// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// B14: a space for which berth has no rights any more, because it is not listed, has
// a state of its own, which is no failure.
func TestASpaceThatIsNotListedAnyMoreIsNoFailure(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	host := hostBehind(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !closed.Load() || r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "berth-unlisted") {
			return false
		}
		status := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "berth-unlisted", nil).Status()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(status)
		return true
	})
	b := start(t, "--host-kubeconfig", host, "--space", "listed,unlisted")
	b.stop(t, syscall.SIGTERM)
	closed.Store(true)
	b.up(t, "--host-kubeconfig", host, "--space", "listed")
	b.awaitState(t, "unlisted", shard.ReasonNotListed)
	if _, message := b.stateOf(t, "unlisted"); !strings.Contains(message, "list it again") {
		t.Errorf("the condition says %q", message)
	}
	_, text := fetch(t, b.socket(), "http://berth/metrics")
	for _, want := range []string{`berth_spaces{state="failed"} 0`, `berth_spaces{state="not_listed"} 1`} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("there is no %s", want)
		}
	}
	b.space(t, "listed").kubectl(t, "get", "pods")
}
