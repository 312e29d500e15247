// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
)

// neverServed are the resources of the core group that stock has and no tenant's space has, with what describes them.
var neverServed = map[string]struct { //nolint:gochecknoglobals // Does not change.
	reason      string
	paths       []string
	definitions []string // which nothing else refers to
}{
	"bindings": {
		reason:      "the host schedules the pods of a space",
		paths:       []string{"/api/v1/namespaces/{namespace}/bindings"},
		definitions: []string{"io.k8s.api.core.v1.Binding"}, // and pods/binding
	},
	"pods/binding": {
		reason: "the host schedules the pods of a space",
		paths:  []string{"/api/v1/namespaces/{namespace}/pods/{name}/binding"},
	},
	"nodes/proxy": {
		reason: "nodes belong to the host",
		paths:  []string{"/api/v1/nodes/{name}/proxy", "/api/v1/nodes/{name}/proxy/{path}"},
	},
	"componentstatuses": {
		reason:      "the platform runs the components of a space",
		paths:       []string{"/api/v1/componentstatuses", "/api/v1/componentstatuses/{name}"},
		definitions: []string{"io.k8s.api.core.v1.ComponentStatus", "io.k8s.api.core.v1.ComponentStatusList", "io.k8s.api.core.v1.ComponentCondition"},
	},
}

// neverWritten are those of which only Berth writes objects, with the verbs that are left.
var neverWritten = map[string]struct { //nolint:gochecknoglobals // Does not change.
	verbs []any
	paths []string
}{
	"nodes":        {[]any{"get", "list", "watch"}, []string{"/api/v1/nodes", "/api/v1/nodes/{name}"}},
	"nodes/status": {[]any{"get"}, []string{"/api/v1/nodes/{name}/status"}},
}

// U6: what a tenant's space shows is what stock shows, other than what it has more (the group access.berth.dev), and what its tenant can
// never use.
func TestATenantsSpaceShowsWhatStockDoesWithoutWhatItNeverServes(t *testing.T) {
	c := comparison{stock: startStock(t), space: start(t, config(t, "shown")).Loopback()}
	for _, tc := range []struct {
		path, accept string
		expect       func(t *testing.T, stock map[string]any) // turns what stock says into what a space does
		more         func(space map[string]any)               // removes what a space has more
	}{
		{path: "/api", accept: asJSONType},
		{path: "/api", accept: asAggregated, expect: hideAggregated},
		{path: "/api/v1", accept: asJSONType, expect: hideResources},
		{path: "/apis", accept: asJSONType, more: func(space map[string]any) { without(space, "groups", "name", "access.berth.dev") }},
		{path: "/apis", accept: asAggregated, more: func(space map[string]any) {
			space["items"] = slices.DeleteFunc(space["items"].([]any), func(g any) bool { return field(g, "metadata", "name") == "access.berth.dev" })
		}},
		{path: "/openapi/v2", accept: asJSONType, expect: hideDescribed("definitions"), more: removeTenantAccess},
		{path: "/openapi/v3", accept: asJSONType, expect: removeHash, more: func(space map[string]any) {
			removeHash(t, space)
			maps.DeleteFunc(space["paths"].(map[string]any), func(path string, _ any) bool { return strings.Contains(path, "access.berth.dev") })
		}},
		{path: "/openapi/v3/api/v1", accept: asJSONType, expect: hideDescribed("components", "schemas")},
	} {
		t.Run(tc.path+" as "+tc.accept, func(t *testing.T) {
			want, got := c.document(t, c.stock, tc.path, tc.accept), c.document(t, c.space, tc.path, tc.accept)
			if tc.expect != nil {
				tc.expect(t, want)
			}
			if tc.more != nil {
				tc.more(got)
			}
			for _, line := range differences("", want, got) {
				t.Error(line)
			}
		})
	}
	for _, path := range c.otherAPIs(t) {
		c.same(t, http.MethodGet, path, asJSONType, "")
		c.same(t, http.MethodGet, path, asProtobuf, "")
		if strings.Count(path, "/") == 3 { // a version
			c.same(t, http.MethodGet, "/openapi/v3"+path, asJSONType, "")
			c.same(t, http.MethodGet, "/openapi/v3"+path, openAPI3, "")
		}
	}
}

// document is what a server answers, in JSON.
func (c comparison) document(t *testing.T, config *rest.Config, path, accept string) map[string]any {
	t.Helper()
	a := c.must(t, config, http.MethodGet, path, accept, "")
	var document map[string]any
	if err := json.Unmarshal(anonymous(a.body), &document); err != nil || a.code != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", path, a.code, err)
	}
	return document
}

// otherAPIs are the paths of all groups and versions of stock but the core group.
func (c comparison) otherAPIs(t *testing.T) []string {
	t.Helper()
	var index struct{ Paths []string }
	if err := json.Unmarshal(c.must(t, c.stock, http.MethodGet, "/", asJSONType, "").body, &index); err != nil {
		t.Fatal(err)
	}
	apis := slices.DeleteFunc(index.Paths, func(path string) bool { return !strings.HasPrefix(path, "/apis/") || path == "/apis/" })
	if len(apis) < 40 {
		t.Errorf("stock lists %d APIs", len(apis))
	}
	return apis
}

// field is a field of a decoded object, or nil.
func field(of any, path ...string) any {
	for _, name := range path {
		object, _ := of.(map[string]any)
		of = object[name]
	}
	return of
}

// without removes the entries of a list whose key has a value.
func without(of map[string]any, list, key string, value any) {
	of[list] = slices.DeleteFunc(of[list].([]any), func(e any) bool { return field(e, key) == value })
}

func hideResources(_ *testing.T, stock map[string]any) {
	for name := range neverServed {
		without(stock, "resources", "name", name)
	}
	for _, r := range stock["resources"].([]any) {
		if left, ok := neverWritten[field(r, "name").(string)]; ok {
			r.(map[string]any)["verbs"] = left.verbs
		}
	}
}

func hideAggregated(_ *testing.T, stock map[string]any) {
	version := field(stock["items"].([]any)[0], "versions").([]any)[0].(map[string]any)
	for name := range neverServed {
		without(version, "resources", "resource", name)
	}
	for _, r := range version["resources"].([]any) {
		resource := r.(map[string]any)
		name := resource["resource"].(string)
		if left, ok := neverWritten[name]; ok {
			resource["verbs"] = left.verbs
		}
		for _, s := range slices.Clone(listOf(resource["subresources"])) {
			sub := s.(map[string]any)
			full := name + "/" + sub["subresource"].(string)
			if _, ok := neverServed[full]; ok {
				without(resource, "subresources", "subresource", sub["subresource"])
			}
			if left, ok := neverWritten[full]; ok {
				sub["verbs"] = left.verbs
			}
		}
	}
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// hideDescribed removes what describes resources, where definitions are in an OpenAPI document.
func hideDescribed(definitions ...string) func(*testing.T, map[string]any) {
	return func(t *testing.T, stock map[string]any) {
		paths, defined := stock["paths"].(map[string]any), field(stock, definitions...).(map[string]any)
		for _, resource := range neverServed {
			for _, path := range resource.paths {
				remove(t, paths, path)
			}
			for _, name := range resource.definitions {
				remove(t, defined, name)
			}
		}
		if parameters, ok := stock["parameters"].(map[string]any); ok {
			remove(t, parameters, "path-rFDtV0x9") // of a proxy of a node
		}
		for _, resource := range neverWritten {
			for _, path := range resource.paths {
				for _, method := range []string{"post", "put", "patch", "delete"} {
					delete(paths[path].(map[string]any), method)
				}
			}
		}
	}
}

func removeTenantAccess(space map[string]any) {
	maps.DeleteFunc(space["paths"].(map[string]any), func(path string, _ any) bool { return strings.HasPrefix(path, "/apis/access.berth.dev/") })
	maps.DeleteFunc(space["definitions"].(map[string]any), func(name string, _ any) bool { return strings.HasPrefix(name, "dev.berth.access.") })
}

// removeHash removes that of the core group, whose document is another.
func removeHash(t *testing.T, root map[string]any) {
	t.Helper()
	remove(t, root["paths"].(map[string]any), "api/v1")
}

// remove removes an entry, which must be there.
func remove(t *testing.T, from map[string]any, key string) {
	t.Helper()
	if _, ok := from[key]; !ok {
		t.Errorf("there is no %s", key)
	}
	delete(from, key)
}

// U6, with a tenant's own client.
func TestHostileATenantCantUseWhatItsSpaceHides(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "hides")
	c.Controllers = nil
	client := clientset(t, admin(t, gateway.start(t, c)))
	for form, d := range map[string]discovery.DiscoveryInterface{"aggregated": client.Discovery(), "legacy": client.Discovery().WithLegacy()} {
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		verbs := map[string][]string{}
		for _, list := range lists {
			for _, r := range list.APIResources {
				switch list.GroupVersion {
				case "v1":
					verbs[r.Name] = r.Verbs
				case "access.berth.dev/v1alpha1":
					verbs["access "+r.Name] = r.Verbs
				}
			}
		}
		for name := range neverServed {
			if _, ok := verbs[name]; ok {
				t.Errorf("%s discovery has %s", form, name)
			}
		}
		if diff := cmp.Diff([]string{"get", "list", "watch"}, verbs["nodes"]); diff != "" {
			t.Errorf("%s discovery of nodes: %s", form, diff)
		}
		if diff := cmp.Diff([]string{"get"}, verbs["nodes/status"]); diff != "" {
			t.Errorf("%s discovery of the status of nodes: %s", form, diff)
		}
		if !slices.Contains(verbs["access tenantaccesses"], "create") || !slices.Contains(verbs["pods/exec"], "create") {
			t.Errorf("%s discovery lacks what a space serves: %v", form, verbs)
		}
	}
	asProto, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1").SetHeader("Accept", asProtobuf).DoRaw(t.Context())
	if err != nil || !bytes.Contains(asProto, []byte("pods/exec")) || bytes.Contains(asProto, []byte("componentstatuses")) || bytes.Contains(asProto, []byte("nodes/proxy")) {
		t.Errorf("discovery as protobuf: %v, %q", err, asProto)
	}

	v2, err := client.Discovery().OpenAPISchema() // as protobuf
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, p := range v2.GetPaths().GetPath() {
		described[p.GetName()] = true
		if p.GetName() == "/api/v1/nodes" && (p.GetValue().GetGet() == nil || p.GetValue().GetPost() != nil || p.GetValue().GetDelete() != nil) {
			t.Errorf("OpenAPI v2 describes writes of nodes: %v", p.GetValue())
		}
	}
	for _, d := range v2.GetDefinitions().GetAdditionalProperties() {
		described[d.GetName()] = true
	}
	checkHidden(t, "OpenAPI v2", described)

	v3, err := client.Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := v3["api/v1"].Schema(asJSONType)
	if err != nil {
		t.Fatal(err)
	}
	document := &spec3.OpenAPI{}
	if err := json.Unmarshal(encoded, document); err != nil {
		t.Fatal(err)
	}
	described = map[string]bool{}
	for path, item := range document.Paths.Paths {
		described[path] = true
		if path == "/api/v1/nodes" && (item.Get == nil || item.Post != nil || item.Delete != nil) {
			t.Errorf("OpenAPI v3 describes writes of nodes: %v", item)
		}
	}
	for name := range document.Components.Schemas {
		described[name] = true
	}
	asProto, err = v3["api/v1"].Schema(openAPI3)
	if err != nil || !bytes.Contains(asProto, []byte("/pods/{name}/exec")) || bytes.Contains(asProto, []byte("/nodes/{name}/proxy")) || bytes.Contains(asProto, []byte("ComponentStatus")) {
		t.Errorf("OpenAPI v3 as protobuf: %v, %d bytes", err, len(asProto))
	}
	checkHidden(t, "OpenAPI v3", described)

	core := client.CoreV1().RESTClient()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "any"}, Target: corev1.ObjectReference{Kind: "Node", Name: "any"}}
	for what, tc := range map[string]struct {
		request  *rest.Request
		resource string
	}{
		"bind":               {core.Post().AbsPath("/api/v1/namespaces/default/pods/any/binding").Body(binding), "pods/binding"},
		"bind dry":           {core.Post().AbsPath("/api/v1/namespaces/default/pods/any/binding").Param("dryRun", "All").Body(binding), "pods/binding"},
		"bind of old":        {core.Post().AbsPath("/api/v1/namespaces/default/bindings").Body(binding), "bindings"},
		"proxy":              {core.Get().AbsPath("/api/v1/nodes/any/proxy/pods"), "nodes/proxy"},
		"proxy to a port":    {core.Get().AbsPath("/api/v1/nodes/http:any:80/proxy"), "nodes/proxy"},
		"write to the proxy": {core.Post().AbsPath("/api/v1/nodes/any/proxy/run"), "nodes/proxy"},
		"components":         {core.Get().AbsPath("/api/v1/componentstatuses"), "componentstatuses"},
		"a component":        {core.Get().AbsPath("/api/v1/componentstatuses/scheduler"), "componentstatuses"},
		"as a namespace's":   {core.Get().AbsPath("/api/v1/namespaces/default/componentstatuses"), "componentstatuses"},
	} {
		err := tc.request.MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "does not serve "+tc.resource+": "+neverServed[tc.resource].reason) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// checkHidden checks what is described: paths, and names of definitions.
func checkHidden(t *testing.T, document string, described map[string]bool) {
	t.Helper()
	if !described["/api/v1/namespaces/{namespace}/pods/{name}/exec"] || !described["io.k8s.api.core.v1.Node"] {
		t.Errorf("%s lacks what a space serves", document)
	}
	for _, resource := range neverServed {
		for _, name := range slices.Concat(resource.paths, resource.definitions) {
			if described[name] {
				t.Errorf("%s describes %s", document, name)
			}
		}
	}
}
