// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testrace"
	"github.com/berth-dev/berth/vcluster/fields"
	"github.com/berth-dev/berth/vcluster/stored"
)

func data(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", 100)
	}
	return m
}

func owners(n int) []metav1.OwnerReference {
	refs := make([]metav1.OwnerReference, n)
	for i := range refs {
		refs[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("pod-%d", i), UID: types.UID("u")}
	}
	return refs
}

func managers(n int) []metav1.ManagedFieldsEntry {
	list := make([]metav1.ManagedFieldsEntry, n)
	for i := range list {
		list[i] = metav1.ManagedFieldsEntry{Manager: fmt.Sprintf("m-%d", i), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}
	}
	return list
}

func configMap(change func(m *corev1.ConfigMap)) *corev1.ConfigMap {
	m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	change(m)
	return m
}

// encodings returns the count of an object in each form that it has in an API server.
func encodings(t *testing.T, object runtime.Object) map[string]fields.Count {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.JSONToYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	asProtobuf, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	if err != nil {
		t.Fatal(err)
	}
	document := fields.NewDocument(false)
	for part := range strings.SplitAfterSeq(string(text), "a") { // it is read in parts
		_, _ = document.Write([]byte(part))
	}
	return map[string]fields.Count{
		"typed": fields.Of(object), "unstructured": fields.Of(u), "JSON": document.Count(),
		"JSON as YAML": fields.OfYAML(text), "YAML": fields.OfYAML(asYAML), "protobuf": fields.OfProtobuf(asProtobuf),
	}
}

// L3: in whatever encoding an object arrives, what takes an API server quadratic time is refused, and the error says what it is.
func TestHostileObjectsAreRefusedInEachEncoding(t *testing.T) {
	testrace.SkipAlone(t)
	for name, c := range map[string]struct {
		object *corev1.ConfigMap
		says   string
		// unknown are encodings that this isn't counted in.
		unknown string
	}{
		"a map of many keys": {configMap(func(m *corev1.ConfigMap) { m.Data = data(12_000) }), `"data" has`, "protobuf"},
		"many labels":        {configMap(func(m *corev1.ConfigMap) { m.Labels = data(12_000) }), `has 1`, ""},
		"many finalizers":    {configMap(func(m *corev1.ConfigMap) { m.Finalizers = make([]string, 12_000) }), `has 1`, ""},
		"owners of one UID":  {configMap(func(m *corev1.ConfigMap) { m.OwnerReferences = owners(1500) }), "metadata.ownerReferences has 1500 elements", ""},
		"many managers":      {configMap(func(m *corev1.ConfigMap) { m.ManagedFields = managers(150) }), "metadata.managedFields has 150 elements", ""},
	} {
		for encoding, count := range encodings(t, c.object) {
			if encoding == c.unknown {
				continue
			}
			err := count.Check()
			if !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "limit field-steps") {
				t.Errorf("%s as %s: %v", name, encoding, err)
			}
		}
	}
}

func repeat(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

// L3: a schema makes the path of each field, and keeps it in each error: 700 KB for each of 5,000 values took gigabytes.
func TestHostileDocumentsAreRefusedForWhatTheyTake(t *testing.T) {
	for name, c := range map[string]struct {
		patch bool
		text  string
		says  string
	}{
		"managed fields without order":  {false, `{"metadata":{"managedFields":[{"fieldsV1":{"f:data":{` + repeat(12_000, `"f:a":{}`) + `}}}]}}`, "an entry of metadata.managedFields has 12000"},
		"a long name above many fields": {false, `{"spec":{"` + strings.Repeat("n", 700_000) + `":{` + repeat(1000, `"a":1`) + `}}}`, "the paths of all fields"},
		"many levels above many fields": {false, strings.Repeat(`{"a":`, 8000) + "[" + repeat(9000, "1") + "]", "the paths of all fields"},
		"a list of numbers":             {false, `{"spec":{"list":[` + repeat(12_000, "10") + `]}}`, `"list" has`},
		"a list of empty lists":         {false, `{"spec":{"list":[` + repeat(12_000, "[]") + `]}}`, `"list" has`},
		"names that are escaped":        {false, `{"m\u0065tadata":{"owner\u0052eferences":[` + repeat(1100, `{}`) + `]}}`, "metadata.ownerReferences"},
		"owners by operations":          {true, `[` + repeat(1100, `{"op":"add","path":"/metadata/ownerReferences/-","value":{"u\u0069d":"a"}}`) + `]`, "metadata.ownerReferences"},
		"managers by operations":        {true, `[` + repeat(200, `{"op":"add","path":"/metadata/managedFields/-","value":{"fieldsType":"FieldsV1"}}`) + `]`, "metadata.managedFields"},
	} {
		d := fields.NewDocument(c.patch)
		_, _ = d.Write([]byte(c.text))
		if err := d.Count().Check(); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// L3: an API server's decoder takes protobuf that other decoders do not: numbers of fields that overflow, groups that end as
// another one. What comes after that is not counted, so the whole is refused.
func TestHostileProtobufThatCannotBeCountedIsRefused(t *testing.T) {
	const managedFields, group = 17, 50
	metadata, err := (&metav1.ObjectMeta{Name: "m", ManagedFields: managers(150)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string][]byte{
		"a number that overflows":       protowire.AppendBytes(protowire.AppendVarint(nil, (1<<32+managedFields)<<3|uint64(protowire.BytesType)), nil),
		"a group that ends as another":  protowire.AppendTag(protowire.AppendTag(nil, group, protowire.StartGroupType), group+1, protowire.EndGroupType),
		"a number of more than 64 bits": append(protowire.AppendTag(nil, group, protowire.VarintType), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"...),
	} {
		message := append(before, metadata...)
		var decoded metav1.ObjectMeta
		if err := decoded.Unmarshal(message); err != nil || len(decoded.ManagedFields) < 150 {
			t.Fatalf("%s: an API server reads %d field managers: %v", name, len(decoded.ManagedFields), err)
		}
		document, err := (&runtime.Unknown{Raw: protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), message)}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := fields.OfProtobuf(append([]byte(stored.ProtobufPrefix), document...)).Check(); err == nil || !strings.Contains(err.Error(), "malformed protobuf") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Large objects that clients make are far from the limit.
func TestUsualObjectsAreFarFromTheLimit(t *testing.T) {
	testrace.SkipAlone(t)
	for name, object := range map[string]*corev1.ConfigMap{
		"no data":               configMap(func(*corev1.ConfigMap) {}),
		"5,000 keys in 600 KB":  configMap(func(m *corev1.ConfigMap) { m.Data = data(5000) }),
		"1 MiB of JSON as text": configMap(func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "[" + repeat(200_000, `{"a":1}`) + "]"} }),
		"1 MiB of zeros":        configMap(func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{"a": make([]byte, 1<<20)} }),
		"1 MiB of spaces":       configMap(func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": strings.Repeat(" ", 1<<20)} }),
		"7,000 keys, each managed": configMap(func(m *corev1.ConfigMap) {
			m.Data, m.ManagedFields = data(7000), managers(3)
			for i := range m.ManagedFields {
				m.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{` + repeat(7000, `"f:a":{}`) + `}}`)
			}
		}),
		"many owners and managers": configMap(func(m *corev1.ConfigMap) { m.OwnerReferences, m.ManagedFields = owners(300), managers(30) }),
	} {
		for encoding, count := range encodings(t, object) {
			if steps := count.Steps(); steps > bounds.FieldSteps.Bound().Default*2/3 {
				t.Errorf("%s as %s takes %d steps", name, encoding, steps)
			}
		}
	}
}

// Text that is no JSON is counted without harm: an API server refuses it.
func TestTextThatIsNoDocumentIsCounted(t *testing.T) {
	for _, text := range []string{"", "]", "}}}}", `"`, "[{", `{"a":[,,,]}]`, "\\\"{[", `{{{{"a"`, "null", ":,:", `{"\`, "a: [", "k8s\x00"} {
		for _, patch := range []bool{false, true} {
			d := fields.NewDocument(patch)
			_, _ = d.Write([]byte(text))
			if err := d.Count().Check(); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
		for _, count := range []fields.Count{fields.OfYAML([]byte(text)), fields.OfProtobuf([]byte(text))} {
			if err := count.Check(); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
