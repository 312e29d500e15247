// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
)

// ask sends a request to a path of the space's API as its admin does.
func (s *space) ask(t *testing.T, method, path string, header http.Header) (answer, string) {
	t.Helper()
	transport, err := rest.TransportFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header}, string(body)
}

// answer is a response whose body was read.
type answer struct {
	StatusCode int
	Header     http.Header
}

// S5, N1: what proxies answer has the tenant's paths in it, and the server in the
// pod sees nothing of whoever asks, nor of the host.
func TestProxiesReachPodsAndServices(t *testing.T) {
	s := theEnv(t).space(t, "proxy")
	var seen http.Header
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/there?x=1", http.StatusFound)
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="/there">there</a>`)
		default:
			fmt.Fprintf(w, "%s %s", r.Method, r.URL)
		}
	})
	pod := newPod("web", "app")
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: int32(port)}}
	s.run(t, pod)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "main", Port: 80, TargetPort: intstr.FromString("http")}},
	}}
	if _, err := s.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bases := map[string]string{
		"Pod":           "/api/v1/namespaces/default/pods/web/proxy",
		"PodByPort":     "/api/v1/namespaces/default/pods/http:web:" + strconv.Itoa(port) + "/proxy",
		"Service":       "/api/v1/namespaces/default/services/front:80/proxy",
		"ServiceByName": "/api/v1/namespaces/default/services/front:main/proxy",
	}
	testhost.Eventually(t, "reach the service", func(context.Context) error {
		if resp, body := s.ask(t, http.MethodGet, bases["Service"]+"/", nil); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("service answers %d: %s", resp.StatusCode, body)
		}
		return nil
	})
	root := strings.TrimPrefix(s.config.Host, s.url)
	for name, base := range bases {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"Impersonate-User": {"me"}, "Impersonate-Group": {"system:masters"}, "X-Mine": {"yes"}}
			if resp, body := s.ask(t, http.MethodPost, base+"/a/b?c=d", header); resp.StatusCode != http.StatusOK || body != "POST /a/b?c=d" {
				t.Errorf("answer is %d: %s", resp.StatusCode, body)
			}
			if seen.Get("X-Mine") != "yes" || seen.Get("Authorization")+seen.Get("Impersonate-User")+seen.Get("Impersonate-Group") != "" {
				t.Errorf("the pod saw %v", seen)
			}
			if all := fmt.Sprint(seen); strings.Contains(all, hostNode) || strings.Contains(all, "berth-proxy") || strings.Contains(all, "127.0.0.1:"+strconv.Itoa(int(s.kubelet.port()))) {
				t.Errorf("the pod saw of the host: %s", all)
			}
			resp, _ := s.ask(t, http.MethodGet, base+"/away", nil)
			if got := s.resolve(t, base+"/away", resp); got != root+base+"/there?x=1" {
				t.Errorf("redirect leads to %s", got)
			}
			resp, _ = s.ask(t, http.MethodGet, base, nil)
			if got := s.resolve(t, base, resp); got != root+base+"/" {
				t.Errorf("without a slash, redirect leads to %s", got)
			}
			if _, body := s.ask(t, http.MethodGet, base+"/page", nil); !strings.Contains(body, base+"/there") {
				t.Errorf("page is %s", body)
			}
			if resp, body := s.ask(t, http.MethodGet, base+"/page", nil); strings.Contains(body, s.hostPod("web")) || strings.Contains(fmt.Sprint(resp.Header), s.hostNamespace()) {
				t.Errorf("page tells of the host: %v %s", resp.Header, body)
			}
		})
	}
}

// resolve is the path to which an answer redirects whoever asked for path.
func (s *space) resolve(t *testing.T, path string, a answer) string {
	t.Helper()
	from, err := url.Parse(s.config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	to, err := from.Parse(a.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	return to.RequestURI()
}

// S5: a port where nothing listens, and a pod that is not there.
func TestProxiesSayWhatDoesNotAnswer(t *testing.T) {
	s := theEnv(t).space(t, "proxynone")
	s.run(t, newPod("web", "app"))
	unused := serve(t, nil)
	if _, body := s.ask(t, http.MethodGet, "/api/v1/namespaces/default/pods/web:1/proxy/", nil); !strings.Contains(body, "connect to port 1: connection refused") {
		t.Errorf("answer does not say what is the matter: %s", body)
	}
	for name, path := range map[string]string{
		"Port":    "/api/v1/namespaces/default/pods/web:1/proxy/",
		"Pod":     "/api/v1/namespaces/default/pods/none:" + strconv.Itoa(unused) + "/proxy/",
		"Service": "/api/v1/namespaces/default/services/none:80/proxy/",
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := s.ask(t, http.MethodGet, path, nil)
			if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("answer is %d: %s", resp.StatusCode, body)
			}
			if tells(s, body+fmt.Sprint(resp.Header)) {
				t.Errorf("answer tells of the host: %v %s", resp.Header, body)
			}
		})
	}
}

// tells whether a text has something of the host in it that no tenant may know.
func tells(s *space, text string) bool {
	for _, secret := range []string{hostNode, s.hostNamespace(), s.hostPod(""), "berth-syncer", fmt.Sprintf("127.0.0.1:%d", s.kubelet.port())} {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}
