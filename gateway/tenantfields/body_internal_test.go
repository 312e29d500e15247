// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// bodyOf returns a body with a document, which is for the tenant solar.
func bodyOf(document io.Reader) *body {
	return &body{Closer: io.NopCloser(nil), source: document, remover: newRemover("solar"), part: make([]byte, bodyPart)}
}

// U5: metadata.tenant is accepted and removed if it is that of the URL, whatever its spelling, and nothing else changes.
func TestTheTenantOfTheURLIsRemoved(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"tenant":"solar"}}`:                                                                     `{"metadata":{}}`,
		`{"metadata":{"tenant":"solar","name":"p"}}`:                                                          `{"metadata":{"name":"p"}}`,
		`{"metadata":{"name":"p","tenant":"solar"}}`:                                                          `{"metadata":{"name":"p"}}`,
		`{"metadata":{"a":{},"tenant":"solar","name":"p"},"spec":1}`:                                          `{"metadata":{"a":{},"name":"p"},"spec":1}`,
		`{"metadata":{"tenant":"solar","tenant":"solar"},"metadata":{"tenant":""}}`:                           `{"metadata":{},"metadata":{}}`,
		`{"metadata":{"tenant":"solar","a":1,"tenant":null,"b":[1,2]}}`:                                       `{"metadata":{"a":1,"b":[1,2]}}`,
		`{"metadata":{"tenan\u0074":"s\u006flar","a":1}}`:                                                     `{"metadata":{"a":1}}`,
		`{"metad\u0061ta":{"tenant":"solar"}}`:                                                                `{"metad\u0061ta":{}}`,
		`{"metadata":{"selfLink":"/x","tenant" : "solar" }}`:                                                  `{"metadata":{"selfLink":"/x"}}`,
		"{\n \"metadata\": {\n  \"tenant\": " + strings.Repeat(" ", 1000) + "\"solar\",\n  \"a\": 1\n }\n}\n": `{"metadata":{"a":1}}`,
		// What is not the field of the object itself:
		`{"spec":{"template":{"metadata":{"tenant":"x"}}}}`:                      ``,
		`{"metadata":{"labels":{"tenant":"x"},"Tenant":"x","tenants":"x"}}`:      ``,
		`{"Metadata":{"tenant":"x"},"items":[{"metadata":{"tenant":"x"}}]}`:      ``,
		`{"metadata":"tenant","data":{"a":"{\"metadata\":{\"tenant\":\"x\"}}"}}`: ``,
		`{"metadata":[{"tenant":"x"}],"a":{"metadata":{"tenant":"x"}}}`:          ``,
		`{"metadata":{"` + strings.Repeat("x", 3000) + `":"x"}}`:                 ``,
		`[{"metadata":{"tenant":"x"}}]`:                                          ``,
		"metadata: {\"metadata\": {\"tenant\": \"x\"}}\n":                        ``, // YAML
		`{} {"metadata":{"tenant":"x"}}`:                                         ``,
		`{"metadata":{,}}`:                                                       ``,
		`{"metadata":{"a":1,}}`:                                                  ``,
		`{"metadata":{"a":1,,"b":2}`:                                             ``,
		`{"metadata":{"tena`:                                                     ``,
		``:                                                                       ``,
	} {
		if want == "" {
			want = in
		}
		for name, source := range map[string]io.Reader{"whole": strings.NewReader(in), "in bytes": iotest.OneByteReader(strings.NewReader(in)), "with its end": iotest.DataErrReader(strings.NewReader(in))} {
			got, err := io.ReadAll(bodyOf(source))
			if err != nil {
				t.Errorf("%s, %s: %v", in, name, err)
			}
			if len(got) != len(in) || withoutSpaces(string(got)) != withoutSpaces(want) {
				t.Errorf("%s, %s: got %q, want %q with spaces", in, name, got, want)
			}
		}
	}
	// What is not valid stays so.
	for _, in := range []string{`{"metadata":{"tenant":"solar",}}`, `{"metadata":{"tenant":"solar",,"a":1}}`, `{"metadata":{"a":1,"tenant":"solar",}}`} {
		if got, err := io.ReadAll(bodyOf(strings.NewReader(in))); err != nil || json.Valid(got) {
			t.Errorf("%s became %q, %v", in, got, err)
		}
	}
}

func withoutSpaces(s string) string { return strings.Join(strings.Fields(s), "") }

// U5: another tenant is refused, in each spelling in which an API server would read it.
func TestHostileTenantsInDocumentsAreRefused(t *testing.T) {
	for _, in := range []string{
		`{"metadata":{"tenant":"lunar"}}`,
		`{"metadata":{"tenan\u0074":"lunar"}}`,
		`{"\u006detadata":{"\u0074\u0065\u006e\u0061\u006e\u0074":"lunar"}}`,
		`{"metadata":{"tenant":"solar","tenant":"lunar"}}`,
		`{"metadata":{"tenant":"lunar","tenant":"solar"}}`,
		`{"metadata":{"tenant":"solar"},"metadata":{"tenant":"lunar"}}`,
		`{"metadata":{"tenant":"solar"},"spec":{},"metadata":{"a":[{}],"tenant":"lunar"}}`,
		`{"metadata":{"tenant":"Solar"}}`,
		`{"metadata":{"tenant":"solar\u0000"}}`,
		`{"metadata":{"tenant":" solar"}}`,
		`{"metadata":{"tenant":["solar"]}}`,
		`{"metadata":{"tenant":{"a":",}","tenant":"solar"}}}`,
		`{"metadata":{"tenant":7}}`,
		`{"metadata":{"tenant":true}}`,
		`{"metadata":{"tenant":}}`,
		`{"metadata":{"tenant":"` + strings.Repeat("x", 1<<20) + `"}}`,
		`{"data":"` + strings.Repeat("x", 1<<20) + `","metadata":{"tenant":"lunar"}}`,
	} {
		for name, source := range map[string]io.Reader{"whole": strings.NewReader(in), "in bytes": iotest.OneByteReader(strings.NewReader(in))} {
			b := bodyOf(source)
			read, err := io.ReadAll(b)
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "metadata.tenant: Invalid value: ") || !strings.Contains(err.Error(), "for the tenant solar; remove") || len(err.Error()) > 300 {
				t.Errorf("%.100s, %s: the error is %.400v", in, name, err)
			}
			if b.why() == nil || json.Valid(read) {
				t.Errorf("%.100s, %s: the API server gets the object %.100q", in, name, read)
			}
			if n, err := b.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%.100s, %s: it can be read on: %d bytes, %v", in, name, n, err)
			}
		}
	}
}

func TestErrorsOfABodyArePassedOn(t *testing.T) {
	lost := errors.New("the connection is lost")
	got, err := io.ReadAll(bodyOf(io.MultiReader(strings.NewReader(`{"metadata":{"a":1,`), iotest.ErrReader(lost))))
	if !errors.Is(err, lost) || !strings.HasPrefix(string(got), `{"metadata":{"a":1`) {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzRemover: U5: a JSON document without the field is the same document, and one with another tenant never arrives.
func FuzzRemover(f *testing.F) {
	for _, document := range []string{
		`{"metadata":{"tenant":"solar","name":"p"}}`, `{"metadata":{"a":{"tenant":1},"tenan\u0074":"solar" , "b":[]},"metadata":{"tenant":null}}`,
		`{"metadata":{"tenant":"lunar"}}`, `{"metadata":{"tenant":"solar","tenant":"solar",}}`, "{\n\"metadata\" : { \"tenant\" : \"\" } }\n", `[1]`, `{"a":"\"`, `{"metadata":{"tenant"""}}`, `{"metadata":{"tenant"::""}}`, `{"metadata":{"tenant":n ull}}`,
	} {
		f.Add([]byte(document), uint8(2))
	}
	f.Fuzz(func(t *testing.T, document []byte, size uint8) {
		whole, err := io.ReadAll(bodyOf(bytes.NewReader(document)))
		parts, partsErr := io.ReadAll(bodyOf(&partReader{document, int(size) + 1}))
		if (err == nil) != (partsErr == nil) || err == nil && !bytes.Equal(whole, parts) {
			t.Fatalf("%q became %q, %v, and in parts %q, %v", document, whole, err, parts, partsErr)
		}
		if err != nil {
			return
		}
		if len(whole) != len(document) {
			t.Fatalf("%q became %q", document, whole)
		}
		want, before := decoded(document)
		got, after := decoded(whole)
		if before != after {
			t.Fatalf("%q became %q: valid %t, then %t", document, whole, before, after)
		}
		if before && !reflect.DeepEqual(want, got) {
			t.Fatalf("%q became %q", document, whole)
		}
		if before && has(got, "tenant") {
			t.Fatalf("%q became %q, with a tenant", document, whole)
		}
	})
}

// partReader reads parts of a size.
type partReader struct {
	rest []byte
	size int
}

func (r *partReader) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), r.size)], r.rest)
	r.rest = r.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// decoded returns a document without a metadata.tenant that may be there, and whether it is valid. A document with another one
// is returned with it.
func decoded(document []byte) (any, bool) {
	var out any
	if json.Unmarshal(document, &out) != nil {
		return nil, false
	}
	object, _ := out.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	switch meta["tenant"] {
	case "solar", "", nil:
		delete(meta, "tenant")
	}
	return out, true
}

func has(document any, field string) bool {
	object, _ := document.(map[string]any)
	meta, _ := object["metadata"].(map[string]any)
	_, ok := meta[field]
	return ok
}

// U5: operations of a JSON patch that set the tenant of the URL are removed, and those that set another one are refused.
func TestOperationsOnTheTenantAreRemoved(t *testing.T) {
	const a = `{"op":"add","path":"/metadata/labels/a","value":"<tenant>"}`
	for in, want := range map[string]string{
		`[` + a + `]`: `[` + a + `]`,
		`[` + a + `,{"op":"add","path":"/metadata/tenant","value":"solar"}]`:                        `[` + a + `]`,
		`[{"value":"solar","path":"/metadata/tenan\u0074","op":"test"},` + a + `]`:                  `[` + a + `]`,
		`[{"op":"remove","path":"/metadata/tenant"}]`:                                               `[]`,
		`[{"op":"replace","path":"/metadata/tenant","value":""}]`:                                   `[]`,
		`[{"op":"add","path":"/metadata","value":{"tenant":"solar","name":"p"}}]`:                   `[{"op":"add","path":"/metadata","value":{"name":"p"}}]`,
		`[{"op":"add","path":"","value":{"metadata":{"tenant":"solar"}}}]`:                          `[{"op":"add","path":"","value":{"metadata":{}}}]`,
		`[{"op":"add","path":"/spec/tenant","value":"x"},7,{"op":1},{"path":[]},null,"x"]`:          `[{"op":"add","path":"/spec/tenant","value":"x"},7,{"op":1},{"path":[]},null,"x"]`,
		`{"metadata":{"tenant":"x"}}`:                                                               `{"metadata":{"tenant":"x"}}`, // no patch: the API server refuses it
		`[{"tenant":`:                                                                               `[{"tenant":`,
		`[{"op":"add","path":"/metadata/tenant","value":"lunar"}]`:                                  "refused",
		`[{"op":"test","path":"/metadata/tenant","value":"lunar"}]`:                                 "refused",
		`[{"op":"copy","from":"/metadata/name","path":"/metadata/tenant"}]`:                         "refused",
		`[{"op":"add","path":"/metadata/x","value":"lunar","path":"/metadata/tenant"}]`:             "refused",
		`[{"op":"add","path":"/metadata","value":{"tenant":"lunar"}}]`:                              "refused",
		`[{"op":"replace","path":"","value":{"spec":{},"metadata":{"name":"p","tenant":"lunar"}}}]`: "refused",
		`[{"op":"add","path":"/metadata/tenant"}]`:                                                  "refused",
	} {
		got, err := patchWithout("solar", []byte(in))
		if want == "refused" {
			if err == nil || !strings.HasPrefix(err.Error(), "metadata.tenant: ") {
				t.Errorf("%s: got %s, %v", in, got, err)
			}
			continue
		}
		if err != nil || withoutSpaces(string(got)) != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
}

// L3: a patch that is larger than what is read arrives unchanged.
func TestHostileLargePatchesAreNotHeld(t *testing.T) {
	large := `[{"op":"add","path":"/metadata/tenant","value":"` + strings.Repeat("x", 1<<20) + `"}]`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "/", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	if err := readPatch("solar", r); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != large {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}
