// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/declaration"
)

const certificateSchema = `
type: object
properties:
  note: {type: string}
  spec:
    type: object
    properties:
      commonName: {type: string}
      dnsNames: {type: array, items: {type: string}}
      duration: {type: string}
      secretName: {type: string}
      parent: {type: string}
      secretTemplate: {type: object, x-kubernetes-preserve-unknown-fields: true}
      revisionHistoryLimit: {type: integer, default: 1}
      tuning: {type: object, default: {}, properties: {level: {type: integer, default: 3}, mode: {type: string, default: "a'\n"}, all: {type: array, items: {type: string}, default: [x]}}}
      issuerRef: {type: object, properties: {name: {type: string}, kind: {type: string, default: Issuer}, group: {type: string}}}
      privateKey: {type: object, properties: {algorithm: {type: string}, size: {type: integer}, rotationPolicy: {type: string, default: Never}}}
      pods: {type: object, x-kubernetes-preserve-unknown-fields: true}
      loose: {type: object, x-kubernetes-preserve-unknown-fields: true}
      outputs:
        type: array
        items: {type: object, properties: {type: {type: string}, secret: {type: string}, weight: {type: integer, default: 1}}}
      chain: {type: array, items: {type: string}}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const certificateSync = `
direction: ToHost
version: v1
fields:
- {path: note}
- path: spec.dnsNames[*]
  rule: self.endsWith('.example.com') // of the tenant
- {path: spec.duration, rule: "duration(self) <= duration('2160h')"}
- {path: spec.secretName, type: ReturnedSecret}
- {path: spec.parent, type: Object}
- {path: spec.issuerRef.name, type: Imported, resource: clusterissuers.cert-manager.io}
- {path: spec.issuerRef.kind, rule: "self == 'ClusterIssuer'"}
- {path: spec.privateKey.algorithm}
- {path: spec.pods, type: Selector}
- {path: "spec.outputs[*].type"}
- {path: "spec.outputs[*].secret", type: ReturnedSecret}
- {path: "spec.chain[*]", type: Object}
`

// certificates returns the declaration of a resource like cert-manager's.
func certificates(t testing.TB) *declaration.Declaration {
	t.Helper()
	schema := &apiextensionsv1.JSONSchemaProps{}
	of := &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: "certificates.cert-manager.io"}}
	for text, into := range map[string]any{certificateSchema: schema, certificateSync: &of.Spec} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	d, errs := declaration.Compile(of, definition(schema))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return d
}

func definition(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "cert-manager.io", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "certificates", Kind: "Certificate"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}}},
	}}
}

const certificate = `
metadata: {namespace: default, name: web, uid: u}
note: ours
spec:
  dnsNames: [a.example.com, b.example.com]
  duration: 24h
  secretName: web-tls
  parent: ca
  issuerRef: {name: letsencrypt, kind: ClusterIssuer}
  privateKey: {algorithm: RSA}
  pods: {matchLabels: {app: web}}
  outputs: [{type: DER, secret: der}, {type: PEM}]
  chain: [a, b]
`

// hostCertificate is the host object of certificate.
func hostCertificate(t testing.TB, d *declaration.Declaration) *unstructured.Unstructured {
	t.Helper()
	v := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(certificate), &v.Object); err != nil {
		t.Fatal(err)
	}
	out, errs := d.ToHost(t.Context(), space(), v, func(sync, name string) bool { return sync == "clusterissuers.cert-manager.io" && name == "letsencrypt" })
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return out
}

func ofCertificates(d *declaration.Declaration, is, was *unstructured.Unstructured) write {
	w := write{resource: d.GVR, kind: d.Kind.Kind, object: is}
	if was != nil {
		w.old = was
	}
	return w
}

// M4: what a ResourceSync copies passes the policy that is made from it, and nothing else that the account of the space mine might write.
func TestHostileObjectsOfResourceSyncsAreRefusedByThePolicies(t *testing.T) {
	d := certificates(t)
	e := newEvaluator(t, hostpolicy.Declared(d), nil)
	const fields, metadata = hostpolicy.OnlyFields + "certificates", "only metadata"
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	selects := func(key, operator string, values ...any) func(*unstructured.Unstructured) {
		return set([]any{map[string]any{"key": key, "operator": operator, "values": values}}, "spec", "pods", "matchExpressions")
	}
	for name, tc := range map[string]struct {
		change  func(*unstructured.Unstructured)
		refused string
	}{
		"what translation makes":             {func(*unstructured.Unstructured) {}, ""},
		"a status":                           {set("x", "status", "any"), ""},
		"another field at the top":           {set("x", "extra"), fields},
		"another field":                      {set("x", "spec", "commonName"), fields},
		"another field below":                {set(int64(2048), "spec", "privateKey", "size"), fields},
		"another field of an item":           {set([]any{map[string]any{"type": "DER", "password": "p"}}, "spec", "outputs"), fields},
		"a default":                          {set(int64(1), "spec", "revisionHistoryLimit"), ""},
		"another value than the default":     {set(int64(2), "spec", "revisionHistoryLimit"), fields},
		"a default below":                    {set("Never", "spec", "privateKey", "rotationPolicy"), ""},
		"another value below":                {set("Always", "spec", "privateKey", "rotationPolicy"), fields},
		"a default of an item":               {set([]any{map[string]any{"type": "DER", "weight": int64(1)}}, "spec", "outputs"), ""},
		"another value in an item":           {set([]any{map[string]any{"type": "DER", "weight": int64(2)}}, "spec", "outputs"), fields},
		"a default of several values":        {set(map[string]any{"level": int64(3), "mode": "a'\n", "all": []any{"x"}}, "spec", "tuning"), ""},
		"another of several values":          {set(map[string]any{"level": int64(3), "mode": "b", "all": []any{"x"}}, "spec", "tuning"), fields},
		"a value that a rule forbids":        {set("9000h", "spec", "duration"), fields},
		"a value that a rule can't evaluate": {set("long", "spec", "duration"), fields},
		"an item that a rule forbids":        {set([]any{"a.example.com", "bank.test"}, "spec", "dnsNames"), fields},
		"a map instead of a list":            {set(map[string]any{"x.example.com": "bank.test"}, "spec", "dnsNames"), fields},
		"a name of the host's":               {set("ca-key", "spec", "secretName"), fields},
		"a list instead of a name":           {set([]any{"--"}, "spec", "secretName"), fields},
		"an object of the host's":            {set("root", "spec", "parent"), fields},
		"one of several objects":             {set([]any{"mine--default--a", "root"}, "spec", "chain"), fields},
		"a name in an item":                  {set([]any{map[string]any{"secret": "ca-key"}}, "spec", "outputs"), fields},
		"an imported name of a space's":      {set("theirs--default--issuer", "spec", "issuerRef", "name"), fields},
		"no imported name":                   {set(map[string]any{}, "spec", "issuerRef", "name"), fields},
		"a kind that a rule forbids":         {set("Issuer", "spec", "issuerRef", "kind"), fields},
		"no selector":                        {set(map[string]any{}, "spec", "pods"), fields},
		"a selector of labels":               {set(map[string]any{"matchLabels": map[string]any{"berth.dev/space": "mine"}}, "spec", "pods"), fields},
		"a selector of another space":        {selects("berth.dev/space", "In", "theirs"), fields},
		"a selector of two spaces":           {selects("berth.dev/space", "In", "mine", "theirs"), fields},
		"a selector of all spaces":           {selects("berth.dev/space", "Exists"), fields},
		"a selector of the other spaces":     {selects("berth.dev/space", "NotIn", "mine"), fields},
		"a selector of the space":            {selects("berth.dev/space", "In", "mine"), ""},
		"a selector with another field":      {set("x", "spec", "pods", "namespaces"), fields},
		"a spec that is no object":           {set("x", "spec"), fields},
		"a name that is not translated":      {set("web", "metadata", "name"), hostpolicy.NotOurs},
		"no label":                           {func(o *unstructured.Unstructured) { o.SetLabels(nil) }, hostpolicy.NotOurs},
		"a label of another space":           {func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"berth.dev/space": "theirs"}) }, hostpolicy.NotOurs},
		"another namespace":                  {func(o *unstructured.Unstructured) { o.SetNamespace("berth-theirs") }, "only in the space's namespace"},
		"an owner": {func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "mine--default--p", UID: "u"}})
		}, metadata},
		"a finalizer": {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/f"}) }, metadata},
		"an annotation": {func(o *unstructured.Unstructured) {
			all := maps.Clone(o.GetAnnotations())
			all["cert-manager.io/issue-temporary-certificate"] = "true"
			o.SetAnnotations(all)
		}, metadata},
	} {
		t.Run(name, func(t *testing.T) {
			is, was := hostCertificate(t, d), hostCertificate(t, d)
			tc.change(is)
			was.SetNamespace(is.GetNamespace()) // no object moves
			for _, old := range []*unstructured.Unstructured{nil, was} {
				message, cost := e.refuses(ofCertificates(d, is, old))
				if (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
					t.Errorf("update %t: %q, want %q", old != nil, message, tc.refused)
				}
				t.Logf("cost %d", cost)
			}
		})
	}
	other := d.GVR
	other.Version = "v1alpha2"
	if message, _ := e.refuses(write{resource: other, kind: "Certificate", object: hostCertificate(t, d)}); !strings.Contains(message, "only in version v1") {
		t.Errorf("another version: %q", message)
	}
	// What the host added stays, and objects are deleted whatever is in them.
	was := hostCertificate(t, d)
	for _, change := range []func(*unstructured.Unstructured){set("x", "extra"), set("x", "spec", "commonName"), set(int64(2048), "spec", "privateKey", "size")} {
		change(was)
		is := was.DeepCopy()
		set("48h", "spec", "duration")(is)
		if message, _ := e.refuses(ofCertificates(d, is, was)); message != "" {
			t.Errorf("an update that leaves what the host added is refused: %s", message)
		}
	}
	changed := was.DeepCopy()
	set(int64(1024), "spec", "privateKey", "size")(changed)
	if message, _ := e.refuses(ofCertificates(d, changed, was)); !strings.Contains(message, fields) {
		t.Errorf("an update that changes what the host added: %q", message)
	}
	if message, _ := e.refuses(write{resource: d.GVR, kind: "Certificate", old: was}); message != "" {
		t.Errorf("a delete: %s", message)
	}
	unlabeled := hostCertificate(t, d)
	unlabeled.SetLabels(nil)
	if message, _ := e.refuses(write{resource: d.GVR, kind: "Certificate", old: unlabeled}); !strings.Contains(message, hostpolicy.NotOurs) {
		t.Errorf("a delete of an object of the host's: %q", message)
	}
}

// S2: objects that name Services end with the ResourceSync, whatever the space's account writes.
func TestObjectsThatNameServicesAreOwnedByTheResourceSync(t *testing.T) {
	schema := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(certificateSchema), schema); err != nil {
		t.Fatal(err)
	}
	d, errs := declaration.Compile(&v1alpha1.ResourceSync{
		ObjectMeta: metav1.ObjectMeta{Name: "certificates.cert-manager.io", UID: "of-the-sync"},
		Spec: v1alpha1.ResourceSyncSpec{Direction: v1alpha1.SyncToHost, Version: "v1", Fields: []v1alpha1.SyncedField{
			{Path: "spec.parent", Type: v1alpha1.FieldObject, Resource: "services"},
		}},
	}, definition(schema))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	e := newEvaluator(t, hostpolicy.Declared(d), nil)
	v := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{metadata: {namespace: default, name: web, uid: u}, spec: {parent: shop}}"), &v.Object); err != nil {
		t.Fatal(err)
	}
	host, errs := d.ToHost(t.Context(), space(), v, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	const owned, metadata = "must have it as their only owner", "only metadata"
	for name, tc := range map[string]struct {
		change  func(*metav1.OwnerReference)
		refused string
	}{
		"what translation makes": {func(*metav1.OwnerReference) {}, ""},
		"another name":           {func(o *metav1.OwnerReference) { o.Name = "others.example.com" }, metadata},
		"another kind":           {func(o *metav1.OwnerReference) { o.Kind = "CRDShare" }, metadata},
		"another group":          {func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" }, metadata},
		"one that waits":         {func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = new(true) }, metadata},
	} {
		is := host.DeepCopy()
		owners := is.GetOwnerReferences()
		tc.change(&owners[0])
		is.SetOwnerReferences(owners)
		for _, old := range []*unstructured.Unstructured{nil, host} {
			if message, _ := e.refuses(ofCertificates(d, is, old)); (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%s, update %t: %q, want %q", name, old != nil, message, tc.refused)
			}
		}
	}
	for name, owners := range map[string][]metav1.OwnerReference{"none": nil, "two": append(host.GetOwnerReferences(), host.GetOwnerReferences()...)} {
		is := host.DeepCopy()
		is.SetOwnerReferences(owners)
		if message, _ := e.refuses(ofCertificates(d, is, host)); !strings.Contains(message, owned) && !strings.Contains(message, metadata) {
			t.Errorf("%s: %q", name, message)
		}
	}
}

// A host evaluates the policy of a ResourceSync with as many fields as it may have, for large objects.
func TestPoliciesOfResourceSyncsAreNotTooCostly(t *testing.T) {
	d := certificates(t)
	large := hostCertificate(t, d)
	var outputs, names []any
	for range 1000 {
		outputs = append(outputs, map[string]any{"type": "DER", "secret": "mine--default--der", "weight": int64(1)})
		names = append(names, "some.name.of.the.tenant.example.com")
	}
	for name, value := range map[string]any{"outputs": outputs, "dnsNames": names} {
		if err := unstructured.SetNestedField(large.Object, value, "spec", name); err != nil {
			t.Fatal(err)
		}
	}
	wide := &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: d.Name}, Spec: v1alpha1.ResourceSyncSpec{Direction: v1alpha1.SyncToHost, Version: "v1"}}
	item := map[string]any{}
	for i := range 128 {
		name := fmt.Sprintf("fieldWithALongName%d", i)
		item[name] = "x"
		wide.Spec.Fields = append(wide.Spec.Fields, v1alpha1.SyncedField{Path: "spec.listWithALongName[*]." + name, Rule: "self == 'x'"})
	}
	// Here each of the 128 fields is compared with 128 names.
	of, errs := declaration.Compile(wide, definition(nil))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	many := hostCertificate(t, d)
	items := slices.Repeat([]any{item}, 200)
	delete(many.Object, "note")
	many.Object["spec"] = map[string]any{"listWithALongName": items}
	for name, tc := range map[string]struct {
		policy hostpolicy.Policy
		object *unstructured.Unstructured
	}{"long lists": {hostpolicy.Declared(d), large}, "many fields": {hostpolicy.Declared(of), many}} {
		t.Run(name, func(t *testing.T) {
			message, cost := newEvaluator(t, tc.policy, nil).refuses(ofCertificates(d, tc.object, nil))
			if message != "" {
				t.Errorf("refused: %s", message)
			}
			size := 0
			for _, v := range tc.policy.Validations {
				size = max(size, len(v.Expression))
			}
			t.Logf("cost %d of %d, the longest expression has %d bytes", cost, celconfig.RuntimeCELCostBudget, size)
		})
	}
}
