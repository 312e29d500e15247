// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/vcluster/pki"
)

// webhook is a server of admission reviews behind a service of a space's, as
// charts install them.
type webhook struct {
	port     int
	ca       []byte
	asked    atomic.Int64
	answered func(w http.ResponseWriter, review *admissionv1.AdmissionReview)
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.asked.Add(1)
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.answered(w, &review)
}

// denies answers each review with a message.
func denies(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "not on a Saturday"}}
	_ = json.NewEncoder(w).Encode(review)
}

// startWebhook serves on this machine, as kubelet has all pods of a space do.
func startWebhook(t *testing.T, answered func(http.ResponseWriter, *admissionv1.AdmissionReview)) *webhook {
	t.Helper()
	h := &webhook{answered: answered}
	h.port, h.ca = serveTLS(t, h)
	return h
}

// serveTLS serves on this machine, by the name of the service hook, until the test ends.
func serveTLS(t *testing.T, h http.Handler) (port int, ca []byte) {
	t.Helper()
	issuer, err := pki.OpenCA(filepath.Join(t.TempDir(), "hook"), "hook")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issuer.Server("hook.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // of those that hang
		server.Close()
	})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	return port, issuer.PEM()
}

// expose makes the service hook, with a selector or without.
func (s *space) expose(t *testing.T, selector map[string]string, port int) {
	t.Helper()
	if _, err := s.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt(port)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// review has all new config maps of the namespace default reviewed by client.
func (s *space) review(t *testing.T, client admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	none := admissionregistrationv1.SideEffectClassNone
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", ClientConfig: client, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "default"}},
		}},
	}
	if _, err := s.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventuallyRefused waits until a config map is refused with a word, and returns what was said.
func (s *space) eventuallyRefused(t *testing.T, word string) (said string) {
	t.Helper()
	testhost.Eventually(t, "the refusal "+word, func(ctx context.Context) error {
		_, err := s.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		if err == nil {
			return errors.New("the config map is created")
		}
		if said = err.Error(); !strings.Contains(said, word) {
			return fmt.Errorf("refused for another reason: %w", err)
		}
		return nil
	})
	return said
}

func service(name string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name}}
}

// S8: a webhook in a pod of the space is asked, at its service's name.
func TestAdmissionWebhooksInPodsAreCalled(t *testing.T) {
	s := theEnv(t).space(t, "hooked")
	h := startWebhook(t, denies)
	s.run(t, newPod("web", "app"))
	s.expose(t, map[string]string{"app": "web"}, h.port)
	client := service("hook")
	client.CABundle = h.ca
	s.review(t, client)
	s.eventuallyRefused(t, "not on a Saturday")
}

// S8, N1: a webhook leads to pods of the space and to nothing else, whatever the
// tenant writes: it listens here, where Berth runs, and is not reached.
func TestAdmissionWebhooksReachNothingButPods(t *testing.T) {
	h := startWebhook(t, denies)
	here := "https://127.0.0.1:" + strconv.Itoa(h.port)
	count := 0
	for name, c := range map[string]struct {
		prepare func(*testing.T, *space)
		client  admissionregistrationv1.WebhookClientConfig
	}{
		"this process by address":   {nil, admissionregistrationv1.WebhookClientConfig{URL: ptr.To(here)}},
		"this process by name":      {nil, admissionregistrationv1.WebhookClientConfig{URL: ptr.To(strings.Replace(here, "127.0.0.1", "localhost", 1))}},
		"metadata of a cloud":       {nil, admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://169.254.169.254/latest")}},
		"endpoints that are no pod": {func(t *testing.T, s *space) { s.expose(t, nil, h.port); s.endpoint(t, "192.0.2.7", h.port) }, service("hook")},
		"a name of another's": {func(t *testing.T, s *space) {
			if _, err := s.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "hook"},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: 443}}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, service("hook")},
		"the space's own API": {nil, admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "kubernetes"}}},
	} {
		t.Run(name, func(t *testing.T) {
			count++
			s := theEnv(t).space(t, "astray"+strconv.Itoa(count))
			if c.prepare != nil {
				c.prepare(t, s)
			}
			c.client.CABundle = h.ca
			s.review(t, c.client)
			if said := s.eventuallyRefused(t, "failed calling webhook"); tells(s, said) {
				t.Errorf("the refusal tells of the host: %s", said)
			}
			if h.asked.Load() != 0 {
				t.Error("a server that is no pod of the space's was reached")
			}
		})
	}
}

// endpoint has the service hook lead to an address.
func (s *space) endpoint(t *testing.T, address string, port int) {
	t.Helper()
	if _, err := s.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "hook", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(port))}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// What a webhook answers is read into memory that all spaces share.
func TestAWebhookThatNeverEndsItsAnswerIsCutOff(t *testing.T) {
	s := theEnv(t).space(t, "endless")
	h := startWebhook(t, func(w http.ResponseWriter, _ *admissionv1.AdmissionReview) {
		_, _ = io.Copy(w, spaces{})
	})
	s.run(t, newPod("web", "app"))
	s.expose(t, map[string]string{"app": "web"}, h.port)
	client := service("hook")
	client.CABundle = h.ca
	s.review(t, client)
	s.eventuallyRefused(t, "longer than")
}

// spaces never end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
