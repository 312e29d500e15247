// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Connections pass through, too, by other means: their answers' headers are bounded.
func TestAPIServicesUpgradeConnections(t *testing.T) {
	s := theEnv(t).space(t, "upgraded")
	const prefix = "/apis/wardle.example.com/v1alpha1/"
	h := s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n")
		if strings.HasSuffix(r.URL.Path, "/endless") {
			_, _ = io.WriteString(conn, "X-Long: ")
			_, _ = io.Copy(conn, spaces{})
			return
		}
		_, _ = io.WriteString(conn, "\r\n")
		_, _ = io.Copy(conn, conn)
	})
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}

	resp := s.open(t, t.Context(), prefix+"echo", header)
	defer func() { _ = resp.Body.Close() }()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("it answers %d", resp.StatusCode)
	}
	said := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, said); err != nil || string(said) != "hello" {
		t.Errorf("the echo is %q (%v)", said, err)
	}

	if a := s.upgrade(t, prefix+"endless", header); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("it answers %d", a.StatusCode)
	}
	h.letGo(t, prefix+"endless")

	// What is open ends with the API service.
	if err := s.apiServices(t).ApiregistrationV1().APIServices().Delete(t.Context(), wardleService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(said); err == nil {
		t.Error("the connection goes on")
	}
}

// S8, N1: an API service leads to pods of the space and to nothing else, whatever
// the tenant and its pods say: a server listens here, where Berth runs, and is not
// reached.
func TestAPIServicesReachNothingButPods(t *testing.T) {
	h := &hostile{answer: func(http.ResponseWriter, *http.Request) {}}
	port, ca := serveTLS(t, h)
	other := theEnv(t).space(t, "others")
	foreign := other.run(t, newPod("foreign", "app"))
	count := 0
	for name, prepare := range map[string]func(*testing.T, *space){
		"endpoints that are no pod": func(t *testing.T, s *space) {
			s.expose(t, nil, port)
			s.endpoint(t, "192.0.2.7", port)
		},
		"a pod of another space's": func(t *testing.T, s *space) {
			s.expose(t, nil, port)
			s.endpoint(t, foreign.Status.PodIP, port)
		},
		"a name of another's": func(t *testing.T, s *space) {
			if _, err := s.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "hook"},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: 443}}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"a redirect": func(t *testing.T, s *space) {
			s.aggregateRedirect(t, port)
		},
	} {
		t.Run(name, func(t *testing.T) {
			count++
			s := theEnv(t).space(t, "led"+strconv.Itoa(count))
			prepare(t, s)
			if name != "a redirect" {
				s.aggregate(t, ca)
			}
			said := s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
			if tells(s, said) {
				t.Errorf("it tells of the host: %s", said)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.reached {
				t.Error("a server that is no pod of the space's was reached")
			}
		})
	}

	t.Run("a redirect of a client", func(t *testing.T) {
		s := theEnv(t).space(t, "redirected")
		s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/flunders") {
				http.Redirect(w, r, fmt.Sprintf("https://127.0.0.1:%d/", port), http.StatusTemporaryRedirect)
			}
		})
		s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")
		if _, err := s.flunders(t, "").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "redirect") {
			t.Errorf("it is passed on: %v", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.reached {
			t.Error("it was followed")
		}
	})
}

// What is built in, and the API of what pods use, which is the host's, can't be handed to a pod.
func TestBuiltInAPIsAreNotServedByPods(t *testing.T) {
	s := theEnv(t).space(t, "builtin")
	for _, name := range []string{"v1.apps", "v1beta1.metrics.k8s.io", "v9.metrics.k8s.io", "v1.apiextensions.k8s.io", "v9.apiregistration.k8s.io"} {
		version, group, _ := strings.Cut(name, ".")
		_, err := s.apiServices(t).ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 100,
				Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "hook"},
			},
		}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.service") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// aggregateRedirect serves flunders by a pod that sends all to a port here.
func (s *space) aggregateRedirect(t *testing.T, port int) {
	t.Helper()
	s.aggregateHostile(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, fmt.Sprintf("https://127.0.0.1:%d%s", port, r.URL.Path), http.StatusTemporaryRedirect)
	})
}
