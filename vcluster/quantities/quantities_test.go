// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/quantities"
)

func pod() reflect.Type { return reflect.TypeFor[corev1.Pod]() }

func TestAQuantityHasAsManyDigitsAsTheLimit(t *testing.T) {
	for number, refused := range map[string]bool{
		"1": false, "100m": false, "1.5Gi": false, "-1e3": false, "1E": false, "1e1000": false, "1e-1000": false, " 1e9 ": false, "1Ei": false, "": false, "e": false, "1e": false,
		"1e1001": true, "1e-1001": true, "+1E+1001": true, ".1e99999999999999999999": true, "1e-9223372036854775808": true, " 1e5000 ": true,
		strings.Repeat("1", 1000): false, strings.Repeat("1", 1001): true, "0." + strings.Repeat("0", 1000) + "1": true,
		"1k5000": false, "12e34567-abc": false, "1ee5000": false,
	} {
		if err := quantities.Check(number); errors.Is(err, bounds.ErrExceeded) != refused {
			t.Errorf("%.20q: %v", number, err)
		}
	}
}

// hostile is what upstream needs 0.3 s for.
const hostile = "1e-5000000"

// encoded returns a Pod with a limit of that text, as JSON, YAML, and protobuf.
func encoded(t *testing.T, limit string) map[string][]byte {
	t.Helper()
	placeholder := strings.Repeat("1", len(limit))
	list := corev1.ResourceList{"cpu": resource.MustParse(placeholder)}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "12e34567-0000-0000-0000-1e2345678901"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b", Resources: corev1.ResourceRequirements{Limits: list}}}},
	}
	documents := map[string][]byte{}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
		var b bytes.Buffer
		if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(p, &b); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b.Bytes(), []byte(placeholder)); n != 1 {
			t.Fatalf("%s has the placeholder %d times", media, n)
		}
		documents[media] = bytes.Replace(b.Bytes(), []byte(placeholder), []byte(limit), 1)
	}
	return documents
}

// L3: 1e-5000000 took 0.3 s to parse, and more than linearly more with a larger exponent.
func TestHostileQuantitiesAreFoundInADocument(t *testing.T) {
	for media, document := range encoded(t, hostile) {
		err := quantities.CheckDocument(document, pod())
		if !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limits.cpu: the quantity") || !strings.Contains(err.Error(), "limit quantity-digits") {
			t.Errorf("%s: %v", media, err)
		}
		codec := quantities.Serializer{NegotiatedSerializer: scheme.Codecs, Scheme: scheme.Scheme}
		info, _ := runtime.SerializerInfoForMediaType(codec.SupportedMediaTypes(), media)
		decoder := codec.DecoderToVersion(info.Serializer, corev1.SchemeGroupVersion)
		for name, defaults := range map[string]*schema.GroupVersionKind{"says what it is": nil, "has a default": {Version: "v1", Kind: "Pod"}} {
			if object, _, err := decoder.Decode(document, defaults, nil); !errors.Is(err, bounds.ErrExceeded) {
				t.Errorf("%s that %s: %v, %v", media, name, object, err)
			}
		}
	}
}

// A text is one however it is written.
func TestHostileQuantitiesAreFoundHoweverTheyAreWritten(t *testing.T) {
	binary := base64.StdEncoding.EncodeToString([]byte(hostile))
	for name, value := range map[string]string{
		"text": `"1e-5000000"`, "number": `1e5000000`, "escaped": `"1\u0065-5000000"`, "all escaped": `"\u0031\u0065\u002D\u0035000000"`, "with spaces": `"  1e-5000000"`,
		"twice, of which the first is hostile": `"1e-5000000", "cpu": "1"`, "many digits": `"0.` + strings.Repeat("0", 2000) + `"`,
		"YAML, escaped": `"\x31e-5000000"`, "YAML, in 32 bits": `"1\U00000065-5000000"`, "YAML, in two lines": "\"1e-50\\\n 00000\"", "YAML in binary": "!!binary " + binary, "YAML in single quotes": `'1e-5000000'`,
		"YAML by another name of binary": "!<tag:yaml.org,2002:binary> " + binary,
	} {
		document := []byte(`{"spec":{"containers":[{"resources":{"requests":{"cpu": ` + value + `}}}]}}`)
		if err := quantities.CheckDocument(document, pod()); err == nil {
			t.Errorf("%s is taken", name)
		}
		if name[:4] == "YAML" {
			document = []byte("spec:\n  containers:\n  - resources:\n      requests:\n        cpu: " + value + "\n")
			if err := quantities.CheckDocument(document, pod()); err == nil {
				t.Errorf("%s in block style is taken", name)
			}
		}
	}
}

// Wherever a type has a quantity, it is found.
func TestHostileQuantitiesAreFoundInAnyField(t *testing.T) {
	for path, object := range map[string]any{
		`{"spec":{"template":{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"%s"}}]}}}}`:                                                        appsv1.Deployment{},
		`{"spec":{"template":{"spec":{"initContainers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"%s"}}}]}]}}}}`:                   appsv1.DaemonSet{},
		`{"spec":{"limits":[{"max":{"memory":"%s"}}]}}`:                                                                                       corev1.LimitRange{},
		`{"spec":{"hard":{"pods":"%s"}}}`:                                                                                                     corev1.ResourceQuota{},
		`{"spec":{"devices":[{"capacity":{"a":{"value":"1","requestPolicy":{"validValues":["1","%s"]}}}}]}}`:                                  resourcev1.ResourceSlice{},
		`{"items":[{"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"%s"}}}}]}},{"spec":{"serviceName":"web"}}]}`: appsv1.StatefulSetList{},
	} {
		if err := quantities.CheckDocument(fmt.Appendf(nil, path, hostile), reflect.TypeOf(object)); !errors.Is(err, bounds.ErrExceeded) {
			t.Errorf("%T: %v", object, err)
		}
		if err := quantities.CheckDocument(fmt.Appendf(nil, path, "1Gi"), reflect.TypeOf(object)); err != nil {
			t.Errorf("%T: %v", object, err)
		}
	}
}

// The short hash of a commit may look like a large number.
func TestTextThatLooksLikeAQuantityIsTaken(t *testing.T) {
	for media, document := range encoded(t, "12345678901") {
		if err := quantities.CheckDocument(document, pod()); err != nil {
			t.Errorf("%s: %v", media, err)
		}
	}
	document := []byte(`{"metadata":{"labels":{"commit":"12e34567"},"annotations":{"a":"\u0031"}},"spec":{"containers":[{"env":[{"value":"1e-5000000"}],"resources":{"limits":{"cpu":"1"}}}]}}`)
	if err := quantities.CheckDocument(document, pod()); err != nil {
		t.Error(err)
	}
	if err := quantities.CheckDocument([]byte(`{"data":{"a":"1e5000000"`), reflect.TypeFor[corev1.ConfigMap]()); err != nil {
		t.Errorf("a type without quantities: %v", err)
	}
	if err := quantities.CheckDocument([]byte(`{"data":{"a":"1e5000000"`), pod()); err == nil {
		t.Error("a document that can't be read is taken, though it is suspect")
	}
}

// What Check refuses is found in any document.
func TestWhatIsRefusedIsSuspect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`[ ]?[+-]?[0-9]{0,5}[.]?[0-9]{0,5}([eE][+-]?[0-9]{1,8})?`).Draw(t, "number")
		if rapid.Bool().Draw(t, "long") {
			number += strings.Repeat("7", rapid.IntRange(0, 1100).Draw(t, "digits"))
		}
		refused := quantities.Check(number) != nil
		for _, document := range []string{
			`{"spec":{"overhead":{"cpu":"` + number + `"}}}`, "spec:\n  overhead:\n    cpu: '" + number + "'\n",
		} {
			if err := quantities.CheckDocument([]byte(document), pod()); (err != nil) != refused {
				t.Fatalf("refused: %v, %q: %v", refused, document, err)
			}
		}
		if text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"overhead": map[string]string{"cpu": number}}}); err != nil || (quantities.CheckDocument(text, pod()) != nil) != refused {
			t.Fatalf("refused: %v, %q, %v", refused, text, err)
		}
	})
}

func TestHostileQuantitiesAreFoundInAPatch(t *testing.T) {
	const limit = "/spec/containers/0/resources/limits/cpu"
	for name, c := range map[string]struct {
		patch   string
		refused bool
	}{
		"a quantity":                    {`[{"op":"test","path":"/spec","value":{}},{"op":"add","path":"` + limit + `","value":"1e-5000000"}]`, true},
		"an object with one":            {`[{"op":"replace","path":"/spec/containers/-","value":{"resources":{"limits":{"cpu":"1e-5000000"}}}}]`, true},
		"the whole":                     {`[{"op":"replace","path":"","value":{"spec":{"overhead":{"cpu":"1e-5000000"}}}}]`, true},
		"an annotation":                 {`[{"op":"add","path":"/metadata/annotations/a","value":"1e-5000000"}]`, false},
		"a copy of a text":              {`[{"op":"copy","from":"/metadata/annotations/a","path":"` + limit + `"}]`, true},
		"a move of texts":               {`[{"op":"move","from":"/metadata/annotations","path":"/spec/containers/0/resources/limits"}]`, true},
		"an escaped copy":               {`[{"op":"c\u006fpy","from":"/metadata/annotations/a","path":"` + limit + `"}]`, true},
		"a copy to an escaped path":     {`[{"op":"copy","from":"/metadata/annotations/a","path":"/spec/overhead/a~1b"}]`, true},
		"a copy of a quantity":          {`[{"op":"copy","from":"` + limit + `","path":"/spec/containers/1/resources/requests/cpu"}]`, false},
		"a copy of texts to texts":      {`[{"op":"copy","from":"/metadata/annotations","path":"/metadata/labels"}]`, false},
		"a move of a container":         {`[{"op":"move","from":"/spec/containers/0","path":"/spec/initContainers/0"}]`, false},
		"the last of several of a name": {`[{"op":"add","path":"/metadata/name","path":"` + limit + `","value":"1e-5000000"}]`, true},
		"no patch":                      {`{"1e-5000000"`, false},
	} {
		if err := quantities.TypeOf(pod()).CheckPatch([]byte(c.patch)); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TypeOf takes it that there are no quantities where a type holds itself.
func TestNoTypeThatHoldsItselfHasQuantities(t *testing.T) {
	var holdsItself func(t reflect.Type, within []reflect.Type) bool
	holdsItself = func(of reflect.Type, within []reflect.Type) bool {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || slices.Contains(within, of) {
			return slices.Contains(within, of)
		}
		recursive := false
		for i := range of.NumField() {
			recursive = holdsItself(of.Field(i).Type, append(slices.Clone(within), of)) || recursive
		}
		if recursive && quantities.TypeOf(of) != nil {
			t.Errorf("%s holds itself", of)
		}
		return recursive
	}
	for _, of := range scheme.Scheme.AllKnownTypes() {
		holdsItself(of, nil)
	}
}
