// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// documentOf returns an object as it is written to a file.
func documentOf(t *testing.T, h *testHost, object client.Object) string {
	t.Helper()
	gvk, err := h.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"] = gvk.GroupVersion().String(), gvk.Kind
	text, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return "---\n" + string(text)
}

// berthReading runs a command with a standard input.
func berthReading(t *testing.T, in string, args ...string) (out string, err error) {
	t.Helper()
	var stdout bytes.Buffer
	root := newRoot("berth")
	root.SetArgs(args)
	root.SetIn(strings.NewReader(in))
	root.SetOut(&stdout)
	root.SetErr(&bytes.Buffer{})
	err = root.ExecuteContext(t.Context())
	return stdout.String(), err
}

// A policy from a file is the one that the ResourceSync has on the host: also with what the host fills in, such as defaults and UIDs.
func TestThePolicyOfAFileIsThatOfTheHost(t *testing.T) {
	h := use(t)
	boats, docks := syncedDefinition("boats", "Boat", apiextensionsv1.NamespaceScoped), syncedDefinition("docks", "Dock", apiextensionsv1.ClusterScoped)
	boats.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	fields := boats.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	fields["spec"].Properties["class"] = apiextensionsv1.JSONSchemaProps{Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":  1.0}`)}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"a": {Type: "number"}, "b": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"c"`)}},
	}}
	fields["status"] = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}}}
	toHost := newSync(boats.Name, v1alpha1.SyncToHost, "spec.host", "spec.secretName")
	toHost.Spec.Fields[0].Type, toHost.Spec.Fields[0].Resource = v1alpha1.FieldObject, "services" // its owner is the ResourceSync
	toHost.Spec.Fields[1].Rule = "self.endsWith('-tls')"
	toHost.Spec.Status = []string{"status.phase"}
	fromHost := newSync(docks.Name, v1alpha1.SyncFromHost, "spec.host")
	syncs := documentOf(t, h, toHost) + documentOf(t, h, fromHost)
	file := write(t, "syncs.yaml", []byte(syncs))
	definitions := write(t, "crds.yaml", []byte("# of an operator\n"+documentOf(t, h, boats)+documentOf(t, h, docks)))
	moved, err := yaml.YAMLToJSON([]byte(documentOf(t, h, fromHost)))
	if err != nil {
		t.Fatal(err)
	}

	onHost := os.Getenv("KUBECONFIG")
	for _, kubeconfig := range []string{string(h.kubeconfig(t, "https://127.0.0.1:1", "admin")), "apiVersion: v1\nkind: Config\n"} {
		t.Setenv("KUBECONFIG", write(t, "kubeconfig", []byte(kubeconfig)))
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		if out, _, err := berth(t, "sync-policy", "-f", file); err == nil || out != "" ||
			!strings.Contains(err.Error(), "resourcesync boats.example.com: read the CustomResourceDefinition, which no file has, from the host") || !strings.Contains(err.Error(), "add a file that has it with -f") {
			t.Errorf("without a host: got %v and %q", err, out)
		}
	}
	offline := must(t, "sync-policy", "-f", file, "-f", definitions)
	reversed, err := berthReading(t, string(moved), "sync-policy", "-f", "-", "--filename="+definitions)
	if err != nil || !strings.HasSuffix(offline, reversed) || strings.Contains(reversed, "boats") {
		t.Errorf("a value of JSON in standard input: got %v and:\n%s", err, reversed)
	}

	t.Setenv("KUBECONFIG", onHost)
	for _, o := range []client.Object{boats, docks} {
		h.forget(t, o)
		if err := h.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(t, "sync-policy", "-f", file); out != offline {
		t.Errorf("with the definitions of the host:\n%s\nwith those of files:\n%s", out, offline)
	}
	for _, o := range []client.Object{toHost, fromHost} {
		h.forget(t, o)
		if err := h.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(t, "sync-policy", boats.Name, docks.Name); out != offline {
		t.Errorf("with the ResourceSyncs of the host:\n%s\nwith those of files:\n%s", out, offline)
	}
}

// Errors name the file, the document, and the field, and say what to do. What is valid is printed.
func TestSyncPolicySaysWhatIsInvalidInFiles(t *testing.T) {
	h := use(t)
	crd := documentOf(t, h, syncedDefinition("oars", "Oar", apiextensionsv1.NamespaceScoped))
	valid := documentOf(t, h, newSync("oars.example.com", v1alpha1.SyncToHost, "spec.host"))
	changed := func(before, after string) string {
		text := strings.Replace(valid, before, after, 1)
		if text == valid {
			t.Fatalf("%q is not in:\n%s", before, valid)
		}
		return text
	}
	for name, tc := range map[string]struct {
		in   string
		args string
		says []string
	}{
		"another kind":         {"---\n{apiVersion: v1, kind: Secret, metadata: {name: a}}\n", "-f -", []string{`-f=-: document 3: kind "Secret" of apiVersion "v1"`, "move the object to another file"}},
		"another version":      {changed("berth.dev/v1alpha1", "berth.dev/v1"), "-f -", []string{`document 3: kind "ResourceSync" of apiVersion "berth.dev/v1"`}},
		"another type":         {changed("oars.example.com", "others.example.com") + "  maxObjects: many\n", "-f -", []string{"document 3: resourcesync others.example.com: spec.maxObjects", "must be of type integer"}},
		"an unknown field":     {changed("oars.example.com", "others.example.com") + "  tenant: []\n", "-f -", []string{`document 3: resourcesync others.example.com: unknown field "spec.tenant"`}},
		"no direction":         {strings.Replace(changed("oars.example.com", "others.example.com"), "direction: ToHost", "direction: toHost", 1), "-f -", []string{`spec.direction: Unsupported value: "toHost": supported values: "ToHost", "FromHost"`}},
		"no path":              {strings.Replace(changed("oars.example.com", "others.example.com"), "spec.host", "spec.host || true", 1), "-f -", []string{`spec.fields[0].path: Invalid value: "spec.host || true"`}},
		"a rule of the API":    {changed("oars.example.com", "others.example.com") + "  selector: {}\n", "-f -", []string{"spec: Invalid value", "selector is only for direction FromHost"}},
		"a path twice":         {changed("oars.example.com", "others.example.com") + "  status: [status.a, status.a]\n", "-f -", []string{`spec.status[1]: Duplicate value: "status.a"`}},
		"no name":              {changed("name: oars.example.com", "labels: {}"), "-f -", []string{"document 3: resourcesync: metadata.name must be set"}},
		"no definition":        {changed("oars.example.com", "others.example.com"), "-f -", []string{"resourcesync others.example.com: neither a file nor the host has a CustomResourceDefinition"}},
		"another name":         {strings.Replace(crd, "name: oars.example.com", "name: others.example.com", 1), "-f -", []string{"document 3: customresourcedefinition others.example.com: metadata.name: has to be", "oars.example.com"}},
		"nothing":              {"", "-f -", nil},
		"an object twice":      {valid, "-f -", []string{"document 3: resourcesync oars.example.com: it is also in -f=-: document 2; remove one of them"}},
		"a field twice":        {"", "-f twice.yaml -f -", []string{`-f=twice.yaml: read document 1`}},
		"no file":              {"", "-f none.yaml -f -", []string{"-f=none.yaml: open none.yaml: no such file"}},
		"standard input twice": {"", "-f - -f -", []string{"-f=-: standard input can be read once"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("twice.yaml", []byte("a: 1\na: 2\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := berthReading(t, crd+valid+tc.in, append([]string{"sync-policy"}, strings.Fields(tc.args)...)...)
			if strings.Count(out, "---\n") != 5 || strings.Contains(out, "others.example.com") {
				t.Errorf("printed:\n%s", out)
			}
			if (err == nil) != (tc.says == nil) {
				t.Errorf("got %v", err)
			}
			for _, part := range tc.says {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q", err, part)
				}
			}
		})
	}
	for args, says := range map[string]string{
		"sync-policy -f -":                  "-f: the files have no ResourceSync; add a file that has one",
		"sync-policy oars.example.com -f -": `"oars.example.com": a name is of the host, and -f reads a file; use one of them`,
	} {
		if out, err := berthReading(t, crd, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%s: got %v and %q, want %q", args, err, out, says)
		}
	}
}

// C6: the files of the examples are read as they are.
func TestSyncPolicyReadsTheExamples(t *testing.T) {
	use(t)
	for file, syncs := range map[string]int{"../../examples/cert-manager/syncs.yaml": 2, "../../examples/gateway-routes/syncs.yaml": 3} {
		if _, _, err := berth(t, "sync-policy", "-f", file); err == nil || strings.Count(err.Error(), "neither a file nor the host has") != syncs || strings.Contains(err.Error(), "document") {
			t.Errorf("%s: got %v, want only that there is no definition", file, err)
		}
	}
}
