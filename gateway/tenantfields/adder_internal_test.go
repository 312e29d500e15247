// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/testrace"
)

const podPath = "/api/v1/tenants/solar/namespaces/default/pods"

// allPods is the request for the pods of all namespaces, defaultPods is that for those of one, and pod is that for one pod.
var (
	allPods     = links{self: "/api/v1/tenants/solar/pods", namespaces: "/api/v1/tenants/solar/namespaces", resource: "pods"}
	defaultPods = links{self: podPath, resource: "pods"}
	pod         = links{self: podPath + "/p", named: true, resource: "pods"}
)

func newAdder(root role, l links) *adder {
	return &adder{scanner: scanner{root: root}, tenant: "solar", links: l}
}

// inParts returns what adding to a document in parts of a size results in.
func inParts(a *adder, document []byte, size int) string {
	var out strings.Builder
	for len(document) > 0 {
		part := document[:min(size, len(document))]
		changed, rest := a.add(part)
		out.Write(changed)
		document = document[len(part)-len(rest):]
	}
	return out.String()
}

// U5: objects, lists, events of watches, and tables get the fields, at any depth at which there is an object, and nothing else does.
func TestFieldsAreAddedToWhatIsRead(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`
	for name, c := range map[string]struct {
		root     role
		links    links
		in, want string
	}{
		"an object": {apiObject, pod,
			`{"kind":"Pod","metadata":{"name":"p","labels":{"metadata":"{}"}},"spec":{"metadata":{"name":"x"}}}`,
			`{"kind":"Pod","metadata":{"name":"p","labels":{"metadata":"{}"},"tenant":"solar","selfLink":"` + podPath + `/p"},"spec":{"metadata":{"name":"x"}}}`},
		"an object that was created": {apiObject, defaultPods,
			`{"metadata":{"name":"p-x7","namespace":"default"}}`,
			`{"metadata":{"name":"p-x7","namespace":"default","tenant":"solar","selfLink":"` + podPath + `/p-x7"}}`},
		"an object without a name": {apiObject, defaultPods,
			`{"kind":"SelfSubjectReview","metadata":{"creationTimestamp":null}}`,
			`{"kind":"SelfSubjectReview","metadata":{"creationTimestamp":null,"tenant":"solar"}}`},
		"an object with fields named items and rows": {apiObject, pod,
			`{"kind":"X","apiVersion":"a.b/v1","metadata":{"name":"p"},"items":[{"metadata":{"name":"x"}}],"rows":[{"object":{"metadata":{}}}]}`,
			`{"kind":"X","apiVersion":"a.b/v1","metadata":{"name":"p","tenant":"solar","selfLink":"` + podPath + `/p"},"items":[{"metadata":{"name":"x"}}],"rows":[{"object":{"metadata":{}}}]}`},
		"empty metadata": {apiObject, pod, `{"metadata":{}}`, `{"metadata":{"tenant":"solar","selfLink":"` + podPath + `/p"}}`},
		"a list of all namespaces": {apiList, allPods,
			`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"p","namespace":"n"}},{"metadata":{"namespace":"m","ownerReferences":[{"name":"o"}],"name":"q"}}]}`,
			`{"kind":"PodList","metadata":{"resourceVersion":"1","tenant":"solar","selfLink":"/api/v1/tenants/solar/pods"},"items":[` +
				`{"metadata":{"name":"p","namespace":"n","tenant":"solar","selfLink":"/api/v1/tenants/solar/namespaces/n/pods/p"}},` +
				`{"metadata":{"namespace":"m","ownerReferences":[{"name":"o"}],"name":"q","tenant":"solar","selfLink":"/api/v1/tenants/solar/namespaces/m/pods/q"}}]}`},
		"a list of custom resources, which begins with its items": {apiList, defaultPods,
			`{"apiVersion":"a.b/v1","items":[{"metadata":{"name":"p","namespace":"default"}}],"kind":"XList","metadata":{"resourceVersion":"1"}}`,
			`{"apiVersion":"a.b/v1","items":[{"metadata":{"name":"p","namespace":"default","tenant":"solar","selfLink":"` + podPath + `/p"}}],"kind":"XList","metadata":{"resourceVersion":"1","tenant":"solar","selfLink":"` + podPath + `"}}`},
		"an empty list": {apiList, allPods, `{"metadata":{},"items":null}`, `{"metadata":{"tenant":"solar","selfLink":"/api/v1/tenants/solar/pods"},"items":null}`},
		"a name with escapes": {apiObject, links{self: "/x"},
			`{"metadata":{"name":"system:a\u002fb\"\\ü"}}`, `{"metadata":{"name":"system:a\u002fb\"\\ü","tenant":"solar","selfLink":"/x/system:a%2Fb%22%5C%C3%BC"}}`},
		"a name that is too long": {apiObject, links{self: "/x"},
			`{"metadata":{"name":"` + strings.Repeat("a", 1100) + `"}}`, `{"metadata":{"name":"` + strings.Repeat("a", 1100) + `","tenant":"solar"}}`},
		"a watch": {watchEvent, defaultPods,
			`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"p"}}}` + "\n" + `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"2"}}}` + "\n" +
				`{"type":"ERROR","object":` + status + "}\n",
			`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"p","tenant":"solar","selfLink":"` + podPath + `/p"}}}` + "\n" +
				`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"2","tenant":"solar"}}}` + "\n" + `{"type":"ERROR","object":` + status + "}\n"},
		"a watch of tables": {watchEvent, defaultPods,
			`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[{"cells":["{\"metadata\":{}}"],"object":{"metadata":{"name":"p"}}}]}}`,
			`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"tenant":"solar"},"rows":[{"cells":["{\"metadata\":{}}"],"object":{"metadata":{"name":"p","tenant":"solar","selfLink":"` + podPath + `/p"}}}]}}`},
		"a table": {apiList, defaultPods,
			`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["p",{}],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"p"}}},{"cells":[],"object":null}]}`,
			`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1","tenant":"solar","selfLink":"` + podPath + `"},"columnDefinitions":[{"name":"Name"}],"rows":[{"cells":["p",{}],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"p","tenant":"solar","selfLink":"` + podPath + `/p"}}},{"cells":[],"object":null}]}`},
		"a status":  {apiObject, pod, status, status},
		"no object": {apiObject, pod, `[{"metadata":{}}] "x" 1`, `[{"metadata":{}}] "x" 1`},
		"an indented object": {apiObject, pod,
			"{\n  \"metadata\": {\n    \"name\": \"p\"\n  },\n  \"a\": {}\n}",
			"{\n  \"metadata\": {\n    \"name\": \"p\",\n    \"tenant\": \"solar\",\n    \"selfLink\": \"" + podPath + "/p\"\n  },\n  \"a\": {}\n}"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{len(c.in), 1, 7} {
				got := inParts(newAdder(c.root, c.links), []byte(c.in), size)
				if size < len(c.in) && strings.Contains(c.in, "\n ") {
					continue // the indentation of what is added depends on the parts
				}
				if got != c.want {
					t.Errorf("in parts of %d bytes: got\n%s\nwant\n%s", size, got, c.want)
				}
			}
		})
	}
}

// L3: what an aggregated API of a tenant responds with may be anything.
func TestHostileDocumentsNeedBoundedMemory(t *testing.T) {
	testrace.SkipAlone(t)
	for name, part := range map[string]string{
		"depth":       `{"metadata":{"x":[`,
		"rows":        `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"object":`,
		"a name":      strings.Repeat("a", 1<<10),
		"backslashes": strings.Repeat(`\\`, 1<<10),
		"closing":     "}]}]}]",
		"spaces":      strings.Repeat(" ", 1<<10),
		"objects":     `"}}` + strings.Repeat(`{"metadata":{}}`, 1<<10),
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdder(apiObject, links{self: strings.Repeat("x", maxLink), named: true})
			a.add([]byte(`{"metadata":{"labels":{},"name":"`))
			for range 1 << 12 {
				for rest := []byte(part); len(rest) > 0; {
					_, rest = a.add(rest)
				}
			}
			if size := cap(a.kept) + cap(a.out); size > 4*maxOut {
				t.Errorf("it holds %d bytes", size)
			}
		})
	}
}

// A path that is too long to be that of an object is no link.
func TestHostilePathsAreNoLinks(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/apis/x.example.com/v1/things/"+strings.Repeat("a", 60_000), nil)
	if l := linksOf("solar", infoOf(r)); l.self != "" || l.namespaces != "" {
		t.Errorf("a path of 60,000 characters is the link %.50q", l.self)
	}
}

// added matches what was added to a document in which the tenant's name is the byte 1, which JSON does not contain.
var added = regexp.MustCompile(`(,\s*)?"tenant": ?"\x01"(,\s*"selfLink": ?"\x01[^"]*")?`)

// FuzzAdder: U5: all bytes of a response are those of the API server, except what is added; and that does not depend on how it is
// written.
func FuzzAdder(f *testing.F) {
	for _, document := range []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a","namespace":"b","x":{"y":[]}},"spec":{}}]}`,
		"{\n  \"metadata\": {\n    \"name\": \"p\"\n  }\n}\n", `{"metadata":{"name":"\u0061\"\\"}}`, `{"metadata":{ }}`,
		`{"type":"ADDED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[{"object":{"metadata":{"name":"p"}}}]}}`,
		`{"kind":"Status","apiVersion":"v1","metadata":{}}`, `{"metadata":{,}}`, `]}{"metadata"`, `{"a\`,
	} {
		for root := range 3 {
			f.Add([]byte(document), uint8(root), uint8(3))
		}
	}
	f.Fuzz(func(t *testing.T, document []byte, root, size uint8) {
		start := func() *adder {
			a := newAdder([]role{watchEvent, apiObject, apiList}[root%3], links{self: "\x01", namespaces: "\x01n", resource: "pods"})
			a.tenant = "\x01"
			return a
		}
		whole, parts := inParts(start(), document, len(document)+1), inParts(start(), document, int(size)+1)
		valid := json.Valid(document)
		for _, out := range []string{whole, parts} {
			if !isSubsequence(document, out) {
				t.Fatalf("%q became %q", document, out)
			}
			if !valid {
				continue
			}
			if got := added.ReplaceAllString(out, ""); got != string(document) {
				t.Fatalf("%q became %q, which is %q without what was added", document, out, got)
			}
			if !json.Valid([]byte(strings.ReplaceAll(out, "\x01", "x"))) {
				t.Fatalf("%q became %q", document, out)
			}
		}
		if valid && compact(t, whole) != compact(t, parts) {
			t.Fatalf("%q became %q, and in parts %q", document, whole, parts)
		}
	})
}

func compact(t *testing.T, document string) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(strings.ReplaceAll(document, "\x01", "x"))); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// isSubsequence reports whether out is document with additions.
func isSubsequence(document []byte, out string) bool {
	for _, c := range []byte(out) {
		if len(document) > 0 && document[0] == c {
			document = document[1:]
		}
	}
	return len(document) == 0
}

// BenchmarkAdder: a list of 5,000 pods.
func BenchmarkAdder(b *testing.B) {
	list := podList(b, 5000)
	a := newAdder(apiList, allPods)
	b.SetBytes(int64(len(list)))
	b.ReportAllocs()
	for b.Loop() {
		for rest := list; len(rest) > 0; {
			part := rest[:min(maxPart, len(rest))]
			_, left := a.add(part)
			rest = rest[len(part)-len(left):]
		}
	}
}
