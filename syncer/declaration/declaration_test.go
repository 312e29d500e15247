// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

const schema = `
type: object
properties:
  spec:
    type: object
    properties:
      secretName: {type: string}
      dnsNames: {type: array, items: {type: string}}
      privateKey: {type: object, properties: {algorithm: {type: string}, size: {type: integer}}}
      issuerRef: {type: object, properties: {name: {type: string}, kind: {type: string}}}
      parts: {type: array, items: {type: object, properties: {of: {type: string}, weight: {type: integer}}}}
      pods: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
  status:
    type: object
    properties:
      conditions: {type: array, items: {type: object, properties: {type: {type: string}, message: {type: string}, observedGeneration: {type: integer}}}}
      notAfter: {type: string}
      internal: {type: string}
`

const fields = `
- {path: spec.secretName, type: ReturnedSecret}
- {path: spec.dnsNames, rule: "self.all(n, n.endsWith('.example.com'))"}
- {path: spec.privateKey.algorithm}
- {path: spec.issuerRef.name, type: Imported, resource: authorities.example.com}
- {path: spec.issuerRef.kind, rule: self == 'Authority'}
- {path: 'spec.parts[*].of', type: Object}
- {path: 'spec.parts[*].weight'}
- {path: spec.pods, type: Selector}
`

func parse[T any](t testing.TB, text string) (out T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(encoded, &o.Object) // with numbers as clients of the API have them
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func definition(t testing.TB, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	props := parse[apiextensionsv1.JSONSchemaProps](t, schema)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "papers.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: scope, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Paper", Plural: "papers"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func spec(t testing.TB) v1alpha1.ResourceSyncSpec {
	return v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Fields: parse[[]v1alpha1.SyncedField](t, fields), Status: []string{"status.conditions", "status.notAfter"},
	}
}

func compiled(t testing.TB, spec v1alpha1.ResourceSyncSpec) *declaration.Declaration {
	t.Helper()
	scope := apiextensionsv1.NamespaceScoped
	if spec.Direction == v1alpha1.SyncFromHost {
		scope = apiextensionsv1.ClusterScoped
	}
	d, errs := declaration.Compile(&v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: "papers.example.com"}, Spec: spec}, definition(t, scope))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return d
}

var shop = translate.Space{Name: "shop"}

func imports(sync, name string) bool { return sync == "authorities.example.com" && name == "public" }

const paper = `
apiVersion: example.com/v1
kind: Paper
metadata: {name: web, namespace: apps, uid: u-1, generation: 7, labels: {team: a}, finalizers: [example.com/f]}
spec:
  secretName: web-tls
  dnsNames: [a.example.com]
  privateKey: {algorithm: RSA}
  issuerRef: {name: public, kind: Authority}
  parts: [{of: other, weight: 2}]
  pods: {matchLabels: {app: web}}
status: {internal: mine}
`

func TestAnObjectOfATenantOnTheHost(t *testing.T) {
	host, errs := compiled(t, spec(t)).ToHost(t.Context(), shop, object(t, paper), imports)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := object(t, `
spec:
  secretName: RETURNED
  dnsNames: [a.example.com]
  privateKey: {algorithm: RSA}
  issuerRef: {name: public, kind: Authority}
  parts: [{of: shop--apps--other, weight: 2}]
  pods:
    matchLabels: {app: web}
    matchExpressions: [{key: berth.dev/space, operator: In, values: [shop]}, {key: berth.dev/namespace, operator: In, values: [apps]}]
`).Object["spec"]
	want.(map[string]any)["secretName"] = declaration.ReturnedName("papers.example.com", shop, "apps", "web-tls")
	if diff := cmp.Diff(want, host.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if host.GetName() != "shop--apps--web" || host.GetNamespace() != "berth-shop" || len(host.GetFinalizers()) > 0 || host.GetLabels()["team"] != "" || host.Object["status"] != nil {
		t.Errorf("metadata: %v, status: %v", host.Object["metadata"], host.Object["status"])
	}
	if id, ok := translate.IdentityOf(host); !ok || id.UID != "u-1" || id.Name != "web" {
		t.Errorf("identity: %v", id)
	}
}

// S1: what isn't declared doesn't reach the host, and what is declared obeys its rule.
func TestHostileObjectsAreRefused(t *testing.T) {
	d := compiled(t, spec(t))
	for name, c := range map[string]struct{ was, is, refused string }{
		"a field that isn't declared":          {"algorithm: RSA", "size: 1", "spec.privateKey.size: Forbidden: the platform does not sync this field"},
		"a field at the top":                   {"spec:", "data: {a: b}\nspec:", "data: Forbidden"},
		"a rule":                               {"a.example.com", "a.example.org", "spec.dnsNames: Forbidden: the platform allows only values for which this is true: self.all("},
		"a rule of another type":               {"dnsNames: [a.example.com]", "dnsNames: 4", "spec.dnsNames: Forbidden: the platform's rule for it can't be evaluated"},
		"an object that isn't shown":           {"name: public", "name: hidden", `spec.issuerRef.name: Forbidden: "hidden" does not exist`},
		"a name that is none":                  {"secretName: web-tls", "secretName: ../x", "spec.secretName: Invalid value"},
		"a name that is no string":             {"of: other", "of: {a: b}", "spec.parts[0].of: Invalid value"},
		"an empty name":                        {"of: other", "of: ''", "spec.parts[0].of: Invalid value"},
		"a list that is none":                  {"parts: [{of: other, weight: 2}]", "parts: {of: other}", "spec.parts: Invalid value"},
		"an item that is no object":            {"{of: other, weight: 2}", "x", "spec.parts[0]: Invalid value"},
		"a selector with more":                 {"{matchLabels: {app: web}}", "{matchLabels: {app: web}, namespaces: [kube-system]}", "spec.pods: Invalid value"},
		"a selector that is invalid":           {"{matchLabels: {app: web}}", "{matchExpressions: [{key: app, operator: Is}]}", "spec.pods.matchExpressions[0].operator: Invalid value"},
		"an object where a value is a rule's":  {"kind: Authority", "kind: {a: b}", "spec.issuerRef.kind"},
		"undeclared fields in items of a list": {"weight: 2", "namespace: kube-system", "spec.parts[0].namespace: Forbidden"},
		"many bytes":                           {"algorithm: RSA", "algorithm: " + strings.Repeat("x", 64<<10), "at most 65536 are possible"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(paper, c.was, c.is, 1)
			if text == paper {
				t.Fatal("nothing is replaced")
			}
			host, errs := d.ToHost(t.Context(), shop, object(t, text), imports)
			if host != nil || len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.refused) {
				t.Errorf("got %v, %v, want an error with %q", host, errs, c.refused)
			}
		})
	}
}

func TestWhatTheHostFillsInStays(t *testing.T) {
	d := compiled(t, spec(t))
	made := func(text string) *unstructured.Unstructured {
		host, errs := d.ToHost(t.Context(), shop, object(t, text), imports)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		return host
	}
	want := made(paper)
	have := want.DeepCopy()
	for field, value := range map[string]any{"size": int64(2048)} {
		if err := unstructured.SetNestedField(have.Object, value, "spec", "privateKey", field); err != nil {
			t.Fatal(err)
		}
	}
	have.Object["extra"] = map[string]any{"by": "the host"}
	if d.Update(want, have) {
		t.Error("what the host filled in is taken for a change")
	}
	if changed := made(strings.Replace(paper, "  privateKey: {algorithm: RSA}\n", "", 1)); !d.Update(changed, have) {
		t.Error("a field that the tenant removed is not taken for a change")
	}
	if diff := cmp.Diff(map[string]any{"size": int64(2048)}, have.Object["spec"].(map[string]any)["privateKey"]); diff != "" || have.Object["extra"] == nil {
		t.Errorf("after the change, the host has %v", have.Object)
	}
	meddled := want.DeepCopy()
	if err := unstructured.SetNestedStringSlice(meddled.Object, []string{"b.example.com"}, "spec", "dnsNames"); err != nil {
		t.Fatal(err)
	}
	if !d.Update(want, meddled) {
		t.Error("a change on the host is not reverted")
	}
	if diff := cmp.Diff(want.Object, meddled.Object); diff != "" {
		t.Error(diff)
	}
}

func TestTheStatusThatReturns(t *testing.T) {
	d, v := compiled(t, spec(t)), object(t, paper)
	host := object(t, strings.ReplaceAll(`
metadata: {name: shop--apps--web, namespace: berth-shop, generation: 3}
status:
  notAfter: tomorrow
  internal: of the host
  conditions:
  - {type: Ready, observedGeneration: 3, message: "berth-shop/shop--apps--web has its Secret RETURNED"}
  - {type: Old, observedGeneration: 2}
`, "RETURNED", declaration.ReturnedName("papers.example.com", shop, "apps", "web-tls")))
	out, changed := d.Status(shop, v, host)
	want := object(t, `
status:
  internal: mine
  notAfter: tomorrow
  conditions:
  - {type: Ready, observedGeneration: 7, message: apps/web has its Secret web-tls}
  - {type: Old, observedGeneration: 6}
`).Object["status"]
	if diff := cmp.Diff(want, out.Object["status"]); diff != "" || !changed {
		t.Error(changed, diff)
	}
	if _, again := d.Status(shop, out, host); again {
		t.Error("the status changes again")
	}
	v.Object["status"] = "a tenant's own"
	if out, changed := d.Status(shop, v, host); !changed || out.Object["status"].(map[string]any)["notAfter"] != "tomorrow" {
		t.Errorf("got %v", out.Object["status"])
	}
}

func TestWhatASpaceShowsOfTheHost(t *testing.T) {
	d := compiled(t, v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncFromHost, Version: "v1", Status: []string{"status.notAfter"},
		Fields: []v1alpha1.SyncedField{{Path: "spec.privateKey.algorithm"}, {Path: "spec.parts[*].weight"}, {Path: "spec.dnsNames"}},
	})
	host := object(t, strings.Replace(paper, "namespace: apps, ", "", 1))
	host.Object["status"] = map[string]any{"notAfter": "tomorrow", "internal": "x"}
	want := object(t, `
apiVersion: example.com/v1
kind: Paper
metadata: {name: web, labels: {app.kubernetes.io/managed-by: berth}}
spec: {privateKey: {algorithm: RSA}, parts: [{weight: 2}], dnsNames: [a.example.com]}
`)
	v := d.Show(host)
	if diff := cmp.Diff(want.Object, v.Object); diff != "" {
		t.Error(diff)
	}
	out, changed := d.ShowStatus(v, host)
	if diff := cmp.Diff(map[string]any{"notAfter": "tomorrow"}, out.Object["status"]); diff != "" || !changed {
		t.Error(changed, diff)
	}
}

func TestDeclarationsThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ResourceSyncSpec)
		want   string
	}{
		"a field that isn't there": {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[2].Path = "spec.privateKey.algorithms" }, `spec.fields[2].path: Invalid value: "spec.privateKey.algorithms": the definition has no field`},
		"a list without [*]":       {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[5].Path = "spec.parts.of" }, "spec.fields[5].path"},
		"no list with [*]":         {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[2].Path = "spec.privateKey[*].algorithm" }, "is no list"},
		"a field in another":       {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[2].Path = "spec.issuerRef" }, "list only one of them"},
		"a field twice":            {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[1].Path = "spec.secretName" }, "list only one of them"},
		"metadata":                 {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[2].Path = "metadata.labels" }, "metadata and status are not copied"},
		"a rule that is no CEL":    {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[1].Rule = "self ==" }, "spec.fields[1].rule"},
		"a rule of two":            {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[1].Rule = "true) || (true" }, "spec.fields[1].rule"},
		"a rule that is a number":  {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[1].Rule = "1 + 1" }, "must return true or false"},
		"a status that isn't":      {func(s *v1alpha1.ResourceSyncSpec) { s.Status[0] = "status.condition" }, "spec.status[0]"},
		"a version":                {func(s *v1alpha1.ResourceSyncSpec) { s.Version = "v2" }, "spec.version"},
		"a direction":              {func(s *v1alpha1.ResourceSyncSpec) { s.Direction = v1alpha1.SyncFromHost }, "spec.direction"},
		"a word of CEL":            {func(s *v1alpha1.ResourceSyncSpec) { s.Fields[1].Path = "spec.pods.matchLabels.in" }, "is a word of CEL"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t)
			c.change(&s)
			_, errs := declaration.Compile(&v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: "papers.example.com"}, Spec: s}, definition(t, apiextensionsv1.NamespaceScoped))
			if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want) {
				t.Errorf("got %v, want %q", errs, c.want)
			}
		})
	}
}

// S1: an object has the host read a bounded number of Secrets.
func TestHostileObjectsNameFewSecrets(t *testing.T) {
	d := compiled(t, v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Fields: []v1alpha1.SyncedField{{Path: "spec.parts[*].of", Type: v1alpha1.FieldReturnedSecret}},
	})
	of := func(n int) *unstructured.Unstructured {
		v := object(t, "metadata: {name: web, namespace: apps}\nspec: {}")
		var parts []any
		for i := range n {
			parts = append(parts, map[string]any{"of": fmt.Sprintf("secret-%d", i)})
		}
		v.Object["spec"] = map[string]any{"parts": parts}
		return v
	}
	if _, errs := d.ToHost(t.Context(), shop, of(16), imports); len(errs) > 0 {
		t.Errorf("16 names: %v", errs)
	}
	if _, errs := d.ToHost(t.Context(), shop, of(17), imports); len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), "more than 16 Secrets") {
		t.Errorf("17 names: %v", errs)
	}
	if names := d.Names(v1alpha1.FieldReturnedSecret, of(1000)); len(names) != 16 {
		t.Errorf("%d Secrets are read", len(names))
	}
}
