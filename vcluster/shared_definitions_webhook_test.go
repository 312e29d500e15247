// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

// hostWebhook is a conversion webhook of the host, on loopback.
type hostWebhook struct {
	*httptest.Server
	calls, now, most atomic.Int64  // calls, those that run, and how many ran at once
	converts         sync.Map      // kinds and names of the objects that it was called for, as Kind/name
	hang             atomic.Bool   // calls with an object of the name hang do
	released         chan struct{} // closed when they may end
	release          func()
	refuse           atomic.Bool // each call is answered with a status
}

// startHostWebhook starts a webhook that calls the length of a widget size in v1, and length in v2.
func startHostWebhook(t *testing.T) *hostWebhook {
	t.Helper()
	h := &hostWebhook{released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	t.Cleanup(func() {
		h.release()
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *hostWebhook) serve(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	now := h.now.Add(1)
	defer h.now.Add(-1)
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.refuse.Load() {
		w.Header().Set("Retry-After", "1000")
		http.Error(w, "secret of the host", http.StatusServiceUnavailable)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		one := &unstructured.Unstructured{}
		if err := one.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.converts.Store(one.GetKind()+"/"+one.GetName(), true)
		if one.GetName() == "hang" && h.hang.Load() {
			select {
			case <-h.released:
			case <-r.Context().Done():
			}
		}
		spec, _, _ := unstructured.NestedMap(one.Object, "spec")
		from, to := "size", "length"
		if one.GetAPIVersion() == "example.com/v2" {
			from, to = to, from
		}
		if length, ok := spec[from]; ok {
			spec[to] = length
			delete(spec, from)
		}
		if one.GetName() == "large" {
			spec["text"] = strings.Repeat("x", 8<<20)
		}
		one.Object["spec"] = spec
		one.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: one})
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (h *hostWebhook) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// client is how the host reaches the webhook.
func (h *hostWebhook) client() *apiextensionsv1.WebhookClientConfig {
	return &apiextensionsv1.WebhookClientConfig{URL: ptr.To(h.URL + "/convert"), CABundle: h.ca()}
}

// convertedBy gives a definition a second version, to which a webhook converts.
func convertedBy(crd *apiextensionsv1.CustomResourceDefinition, client *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	properties := map[string]apiextensionsv1.JSONSchemaProps{"length": {Type: "integer"}, "text": {Type: "string"}}
	second := widgetDefinition(properties).Spec.Versions[0]
	second.Name, second.Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions[:1], second)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: client, ConversionReviewVersions: []string{"v1"}},
	}
	return crd
}

// plural gives a definition of widgets another name.
func plural(crd *apiextensionsv1.CustomResourceDefinition, name, kind string) *apiextensionsv1.CustomResourceDefinition {
	crd.Name = name + ".example.com"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: name, Kind: kind}
	return crd
}

// sharedWith is what a host with this definition shares.
func sharedWith(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *definitions.Shared {
	t.Helper()
	return &definitions.Shared{CRD: shared(t, crd), InRange: true, Webhook: definitions.WebhookOf(crd)}
}

// converting starts a space with a shared definition, and returns its widgets in the second version, too.
func converting(t *testing.T, name string, set *definitions.Set) (space *vcluster.ControlPlane, tenant tenantOf, second dynamic.ResourceInterface) {
	t.Helper()
	c := config(t, name)
	c.Account = bounds.NewAccount(nil)
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(set)
	closed := &recorder{}
	c.Dial = closed.dial
	space = start(t, c)
	tenant = newTenantOf(t, space)
	tenant.waitForSize(t, true)
	return space, tenant, inVersion(t, space, "v2", "widgets")
}

func inVersion(t *testing.T, space *vcluster.ControlPlane, version, resource string) dynamic.ResourceInterface {
	t.Helper()
	config := space.Loopback()
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return objects.Resource(widgets.GroupResource().WithVersion(version).GroupVersion().WithResource(resource)).Namespace(metav1.NamespaceDefault)
}

func (o tenantOf) createWidget(t *testing.T, name string, size int64) {
	t.Helper()
	if _, err := o.widgets.Create(t.Context(), widget(name, map[string]any{"size": size}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
