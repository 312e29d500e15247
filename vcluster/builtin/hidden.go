// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/vcluster/inside"
)

// A tenant's space doesn't show what its tenant can never use (U6), which is all in the core group. Other control planes have it, such as
// that of the embedded host, and so have requests that Berth itself makes in a space.

const corePath = legacyPrefix + "/v1"

// hidden returns why a tenant's space doesn't serve a resource or subresource, such as pods/binding. It is empty for those that it serves.
func hidden(resource string) (reason string) {
	switch resource {
	case "bindings", "pods/binding":
		return "the host schedules the pods of a space; create pods without bindings"
	case "nodes/proxy":
		return "nodes belong to the host and are hidden in a space"
	case "componentstatuses":
		return "the platform runs the components of a space; read /readyz?verbose"
	}
	return ""
}

// hiddenPaths begin those of what is hidden, as OpenAPI documents have them.
func hiddenPaths() []string {
	const inNamespace = corePath + "/namespaces/{namespace}"
	return []string{
		inNamespace + "/bindings", inNamespace + "/pods/{name}/binding", corePath + "/nodes/{name}/proxy", corePath + "/componentstatuses",
	}
}

// onlyRead tells whether only Berth writes a resource or subresource in a tenant's space. Its other verbs are hidden, but admission refuses
// them: it says what to do, and lets pass updates that change nothing.
func onlyRead(resource string) bool { return resource == "nodes" || resource == "nodes/status" }

// onlyReadPaths are those of what is only read, as OpenAPI documents have them.
func onlyReadPaths() []string {
	return []string{corePath + "/nodes", corePath + "/nodes/{name}", corePath + "/nodes/{name}/status"}
}

// tenantCore is what all tenants' spaces serve of the core group in place of the shared handlers.
type tenantCore struct {
	resources  http.Handler
	aggregated aggregated.ResourceManager
	serializer runtime.NegotiatedSerializer
}

// newTenantCore returns what server says of the core group, without what is hidden.
func newTenantCore(server *genericapiserver.GenericAPIServer) (*tenantCore, error) {
	w := httptest.NewRecorder()
	server.Handler.GoRestfulContainer.Dispatch(w, httptest.NewRequest(http.MethodGet, corePath, http.NoBody))
	var list metav1.APIResourceList
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("read the discovery of the core group: %d", w.Code)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		return nil, fmt.Errorf("read the discovery of the core group: %w", err)
	}
	shown := slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return hidden(r.Name) != "" })
	for i, r := range shown {
		if onlyRead(r.Name) {
			shown[i].Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
		}
	}
	resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(shown)
	if err != nil {
		return nil, fmt.Errorf("aggregate the discovery of the core group: %w", err)
	}
	c := &tenantCore{aggregated: aggregated.NewResourceManager("api"), serializer: server.Serializer}
	c.aggregated.AddGroupVersion("", apidiscoveryv2.APIVersionDiscovery{
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: "v1", Resources: resources,
	})
	c.resources = discovery.NewAPIVersionHandler(c.serializer, schema.GroupVersion{Version: "v1"},
		discovery.APIResourceListerFunc(func() []metav1.APIResource { return shown }))
	return c, nil
}

// serve returns a handler of built-in APIs for a tenant's space; next is that of all.
func (c *tenantCore) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.TrimRight(r.URL.Path, "/") == corePath {
			c.resources.ServeHTTP(w, r)
			return
		}
		if err := refuseHidden(r); err != nil {
			responsewriters.ErrorNegotiated(err, c.serializer, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseHidden returns an error if a request is for what a tenant's space doesn't serve.
func refuseHidden(r *http.Request) error {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest || info.APIGroup != "" || inside.Is(r.Context()) {
		return nil
	}
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	reason := hidden(resource)
	if reason == "" {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("a space does not serve %s: %s", resource, reason),
	}}
}

// withoutHidden returns configurations of documents that describe what a tenant's space serves. Definitions of what is hidden are left out
// by upstream's builder, which adds those that paths refer to.
func withoutHidden(v2 common.Config, v3 common.OpenAPIV3Config) (*common.Config, *common.OpenAPIV3Config) {
	v2.IgnorePrefixes, v3.IgnorePrefixes = hiddenPaths(), hiddenPaths()
	v2.PostProcessSpec = func(document *spec.Swagger) (*spec.Swagger, error) {
		for _, path := range onlyReadPaths() {
			if item, ok := document.Paths.Paths[path]; ok {
				item.Put, item.Post, item.Delete, item.Patch = nil, nil, nil, nil
				document.Paths.Paths[path] = item
			}
		}
		return document, nil
	}
	v3.PostProcessSpec = func(document *spec3.OpenAPI) (*spec3.OpenAPI, error) { // of each group
		for _, path := range onlyReadPaths() {
			if item, ok := document.Paths.Paths[path]; ok {
				item.Put, item.Post, item.Delete, item.Patch = nil, nil, nil, nil
			}
		}
		return document, nil
	}
	return &v2, &v3
}
