// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

const gadgetsURL = definitions.WebhookScheme + "://gadgets.example.com.conversion.berth.invalid/?timeout=11s"

// sharing is a source that shares gadgets, whose webhook is there.
func sharing(t *testing.T, client *apiextensionsv1.WebhookClientConfig) *definitions.Source {
	t.Helper()
	host := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})
	host.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: client},
	}
	crd, err := definitions.Serve(host, "share")
	if err != nil {
		t.Fatal(err)
	}
	source := &definitions.Source{}
	source.Set(definitions.NewSet("", &definitions.Shared{CRD: crd, InRange: true, Webhook: definitions.WebhookOf(host)}))
	return source
}

// webhookOf starts a webhook of the host.
func webhookOf(t *testing.T, h http.HandlerFunc) *apiextensionsv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return &apiextensionsv1.WebhookClientConfig{
		URL: ptr.To(server.URL + "/convert"), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

func call(t *testing.T, s *SharedConversions, url, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer of-the-space")
	return s.RoundTrip(r)
}

// callFails returns the error of a call that must fail.
func callFails(t *testing.T, s *SharedConversions, url, body string) error {
	t.Helper()
	resp, err := call(t, s, url, body)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("a call of %s is answered with %s", url, resp.Status)
	}
	return err
}

// What calls hold, the space's account has, until the answer was read.
func TestHostileCallsOfAWebhookOfTheHostAreAccounted(t *testing.T) {
	t.Parallel()
	client := webhookOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/convert" || r.URL.Query().Get("timeout") != "11s" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("the webhook is sent %s with %v", r.URL, r.Header)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"response":{"convertedObjects":[`+strings.Repeat(`{"a":[]},`, 10_000)+`{}]}}`)
	})
	account := bounds.NewAccount(nil)
	s := NewSharedConversions(t.Context(), sharing(t, client), account)
	object := strings.Repeat("x", 1<<20)
	resp, err := call(t, s, gadgetsURL, object)
	if err != nil {
		t.Fatal(err)
	}
	asked := account.Used(bounds.MemoryBytes)
	if asked < callCopies<<20 {
		t.Errorf("the call of a webhook with 1 MiB is accounted with %d bytes", asked)
	}
	answer := make([]byte, 50_000)
	if _, err := io.ReadFull(resp.Body, answer); err != nil {
		t.Fatal(err)
	}
	if now := account.Used(bounds.MemoryBytes); now < asked+10_000*accountedElement/2 {
		t.Errorf("an answer with 10000 elements is accounted with %d bytes", now-asked)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if left := account.Used(bounds.MemoryBytes); left != 0 {
		t.Errorf("after the call, %d bytes are accounted", left)
	}

	small := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 1 << 20})
	s = NewSharedConversions(t.Context(), sharing(t, client), small)
	if err := callFails(t, s, gadgetsURL, object); !strings.Contains(err.Error(), "limit "+bounds.MemoryBytes.String()) {
		t.Errorf("a call beyond the limit: %v", err)
	}
	if left := small.Used(bounds.MemoryBytes); left != 0 {
		t.Errorf("after a call that was refused, %d bytes are accounted", left)
	}
}

func TestHostileOnlyASharedDefinitionReachesAWebhookOfTheHost(t *testing.T) {
	t.Parallel()
	elsewhere := webhookOf(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirection is followed") })
	called := 0
	client := webhookOf(t, func(w http.ResponseWriter, r *http.Request) {
		called++
		http.Redirect(w, r, *elsewhere.URL, http.StatusTemporaryRedirect)
	})
	s := NewSharedConversions(t.Context(), sharing(t, client), nil)
	for url, why := range map[string]string{
		strings.Replace(gadgetsURL, definitions.WebhookScheme, "https", 1): errNotShared.Error(),
		strings.Replace(gadgetsURL, ".invalid", ".example", 1):             errNotShared.Error(),
		*client.URL: errNotShared.Error(),
		strings.Replace(gadgetsURL, "gadgets", "widgets", 1): "doesn't share the definition any longer",
	} {
		if err := callFails(t, s, url, "{}"); !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", url, err, why)
		}
	}
	if called != 0 {
		t.Error("the webhook was called")
	}
	if err := callFails(t, s, gadgetsURL, "{}"); !strings.Contains(err.Error(), "HTTP status 307") || called != 1 {
		t.Errorf("a webhook that redirects: %v", err)
	}
	ended, stop := context.WithCancel(t.Context())
	s = NewSharedConversions(ended, sharing(t, client), nil)
	stop()
	if err := callFails(t, s, gadgetsURL, "{}"); called != 1 {
		t.Errorf("a space that has stopped calls the webhook: %v", err)
	}
}

// The account has what calls of the space's own webhooks hold, too. Upstream makes them without the context of a request.
func TestHostileConversionsOfASpacesOwnWebhooksAreAccounted(t *testing.T) {
	t.Parallel()
	account := bounds.NewAccount(nil)
	client := webhookOf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	roots, err := rootsOf(client)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.RootCAs = roots
	defer transport.CloseIdleConnections()
	webhook := boundAnswers(MaxConverted, account)(transport)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, *client.URL, bytes.NewReader(make([]byte, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := webhook.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if used := account.Used(bounds.MemoryBytes); used < callCopies<<20 {
		t.Errorf("a call with 1 MiB is accounted with %d bytes", used)
	}
	if err := resp.Body.Close(); err != nil || account.Used(bounds.MemoryBytes) != 0 {
		t.Errorf("after the call, %d bytes are accounted, %v", account.Used(bounds.MemoryBytes), err)
	}
}

// C1, C5: what conversion webhooks answer arrives, whether its length is known or not, and clients may read on after its end.
func TestAnswersOfConversionWebhooksAreRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes   int
		flushed bool
	}{"short": {bytes: 300}, "long": {bytes: 50_000}, "short, in chunks": {300, true}, "long, in chunks": {50_000, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := `{"kind":"ConversionReview","text":"` + strings.Repeat("x", test.bytes) + `"}`
			client := webhookOf(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.flushed {
					_, _ = io.WriteString(w, answer[:100])
					_ = http.NewResponseController(w).Flush()
					_, _ = io.WriteString(w, answer[100:])
					return
				}
				w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
				_, _ = io.WriteString(w, answer)
			})
			roots, err := rootsOf(client)
			if err != nil {
				t.Fatal(err)
			}
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.TLSClientConfig.RootCAs = roots
			defer transport.CloseIdleConnections()
			account := bounds.NewAccount(nil)
			for of, call := range map[string]struct {
				webhook http.RoundTripper
				url     string
			}{
				"own":    {boundAnswers(MaxConverted, account)(transport), *client.URL},
				"shared": {NewSharedConversions(t.Context(), sharing(t, client), account), gadgetsURL},
			} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, call.url, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := call.webhook.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				read, err := io.ReadAll(resp.Body)
				if err != nil || string(read) != answer {
					t.Errorf("%s: got %d of %d bytes, %v", of, len(read), len(answer), err)
				}
				if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("%s: after the end, %d bytes, %v", of, n, err)
				}
				if err := resp.Body.Close(); err != nil || account.Used(bounds.MemoryBytes) != 0 {
					t.Errorf("%s: after the call, %d bytes are accounted, %v", of, account.Used(bounds.MemoryBytes), err)
				}
			}
		})
	}
}

func TestAServiceOfTheHostIsReachedByItsName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		client apiextensionsv1.WebhookClientConfig
		want   string
	}{
		"a service":   {apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Name: "hook", Namespace: "system"}}, "https://hook.system.svc:443"},
		"with a path": {apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Name: "hook", Namespace: "system", Port: ptr.To[int32](9443), Path: ptr.To("/convert")}}, "https://hook.system.svc:9443/convert"},
		"a URL":       {apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://hooks.example.com:8443/convert")}, "https://hooks.example.com:8443/convert"},
		"not https":   {apiextensionsv1.WebhookClientConfig{URL: ptr.To("http://hooks.example.com")}, ""},
		"nothing":     {apiextensionsv1.WebhookClientConfig{}, ""},
	} {
		got, err := targetOf(&test.client)
		if (err != nil) != (test.want == "") || err == nil && got.String() != test.want {
			t.Errorf("%s: %v, %v, want %q", name, got, err, test.want)
		}
	}
	if hook, err := newSharedWebhook(definitions.NewWebhook(&apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://h"), CABundle: []byte("no PEM")})); err == nil {
		t.Errorf("a webhook with a wrong CA is %+v", hook)
	}
	if roots, err := rootsOf(&apiextensionsv1.WebhookClientConfig{CABundle: []byte(" \n")}); roots != nil || err != nil {
		t.Errorf("an empty CA bundle is %v, %v, want the CAs of the system", roots, err)
	}
}
