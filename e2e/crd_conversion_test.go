// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// converter is a conversion webhook of the host, which notes in an annotation from where it converted an object.
type converter struct {
	*httptest.Server
	calls atomic.Int64
}

func startConverter(t *testing.T) *converter {
	t.Helper()
	c := &converter{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.calls.Add(1)
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			one := &unstructured.Unstructured{}
			if err := one.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			one.SetAnnotations(map[string]string{"from": one.GetAPIVersion()})
			one.SetAPIVersion(review.Request.DesiredAPIVersion)
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: one})
		}
		review.Request, review.Response = nil, response
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// clientConfig is how the host reaches the webhook.
func (c *converter) clientConfig() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	return fmt.Sprintf("{url: %s/convert, caBundle: %s}", c.URL, base64.StdEncoding.EncodeToString(ca))
}

// cogDefinition is a definition of cogs in two versions, between which a webhook converts.
func cogDefinition(webhook *converter) string {
	const version = "{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: cogs.example.com}, spec: {group: example.com,
  scope: Namespaced, names: {plural: cogs, singular: cog, kind: Cog}, versions: [%s, %s],
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: %s}}}}`,
		fmt.Sprintf(version, "v1", true), fmt.Sprintf(version, "v2", false), webhook.clientConfig())
}

// C2, C5: the host's webhook converts objects of spaces, whichever process they have, and spaces don't see it.
func TestTheHostConvertsObjectsOfSpaces(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host, first, second := b.host(t), startConverter(t), startConverter(t)
	host.apply(t, tenantObject("solar", "{}"))
	awaitTenant(t, host, "solar")
	host.apply(t, cogDefinition(first))
	host.apply(t, crdShare("cogs.example.com", "{mode: Forced, tenants: [{names: [solar]}]}"))
	host.kubectl(t, "wait", "--for=condition=Ready", "crdshare/cogs.example.com", "--timeout=30s")
	host.apply(t, spaceObject("solar-alone", "{tenantName: solar, isolation: Dedicated}"))
	awaitReady(t, host, "solar-alone", "True")
	spaces := map[string]*cluster{"solar": b.space(t, "solar"), "solar-alone": b.space(t, "solar-alone")}

	converts := func(space *cluster, webhook *converter) {
		t.Helper()
		before := webhook.calls.Load()
		eventually(t, func() error {
			out, err := space.tryKubectl(t, "", "get", "cogs.v2.example.com", "one", "-o", "jsonpath={.apiVersion} {.metadata.annotations.from} {.spec}")
			if err != nil {
				return fmt.Errorf("kubectl get cogs.v2.example.com: %w: %s", err, out)
			}
			if webhook.calls.Load() == before {
				return fmt.Errorf("another webhook was called for %s", out)
			}
			return expect("the object", out, `example.com/v2 example.com/v1 {"teeth":12}`)
		})
	}
	for name, space := range spaces {
		eventually(t, func() error {
			out, err := space.tryKubectl(t, "{apiVersion: example.com/v1, kind: Cog, metadata: {name: one}, spec: {teeth: 12}}", "apply", "-f", "-")
			if err != nil {
				return fmt.Errorf("kubectl apply: %w: %s", err, out)
			}
			return nil
		})
		converts(space, first)
		shown := space.kubectl(t, "get", "crd", "cogs.example.com", "-o", "yaml", "--show-managed-fields")
		if !strings.Contains(shown, "strategy: Webhook") || strings.Contains(shown, first.URL[strings.LastIndex(first.URL, ":"):]) || strings.Contains(shown, "caBundle") {
			t.Errorf("%s shows the conversion of the host as\n%s", name, shown)
		}
	}
	host.apply(t, cogDefinition(second)) // the webhook moves, and gets another CA
	for _, space := range spaces {
		converts(space, second)
	}
	second.Close()
	for name, space := range spaces {
		out, err := space.tryKubectl(t, "", "get", "cogs.v2.example.com")
		if err == nil || !strings.Contains(out, "the platform's conversion webhook of the CustomResourceDefinition cogs.example.com failed") || strings.Contains(out, "127.0.0.1:") {
			t.Errorf("without the webhook, %s answers %v: %s", name, err, out)
		}
		space.kubectl(t, "get", "cogs.v1.example.com", "one")
	}
}
