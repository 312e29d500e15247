// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// accountedFor reads a document in pieces, as it comes from a client.
func accountedFor(t *testing.T, contentType, document string) int64 {
	t.Helper()
	d := newDocumentSize(contentType)
	var size int64
	for len(document) > 0 {
		n := min(len(document), 1000)
		more, err := d.Add([]byte(document[:n]))
		if err != nil {
			t.Fatal(err)
		}
		size += more
		document = document[n:]
	}
	return size
}

// inEnvelope is a protobuf document of an object, as clients send it.
func inEnvelope(t *testing.T, raw string) string {
	t.Helper()
	unknown := apiruntime.Unknown{TypeMeta: apiruntime.TypeMeta{APIVersion: "v1", Kind: "List"}, Raw: []byte(raw)}
	encoded, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(encoded)
}

// L3 (S2): protobuf and YAML are accounted with what they become, however a content type is written.
func TestHostileAProtobufDocumentIsAccountedWithWhatItBecomes(t *testing.T) {
	const n = 20000
	for name, c := range map[string]struct {
		raw  string
		into interface{ Unmarshal(data []byte) error }
	}{
		"pods":                  {strings.Repeat("\x12\x00", n), &corev1.PodList{}},
		"cron jobs":             {strings.Repeat("\x12\x00", n), &batchv1.CronJobList{}},
		"deployments":           {strings.Repeat("\x12\x00", n), &appsv1.DeploymentList{}},
		"definitions":           {strings.Repeat("\x12\x00", n), &apiextensionsv1.CustomResourceDefinitionList{}},
		"schemas":               {strings.Repeat("\xd2\x01\x00", n), &apiextensionsv1.JSONSchemaProps{}},
		"pods, then no message": {strings.Repeat("\x12\x00", n) + "\x07", &corev1.PodList{}},
		"finalizers":            {strings.Repeat("\x72\x00", n), &metav1.ObjectMeta{}},
		"numbers":               {strings.Repeat("\x20\x01", n), &corev1.PodSecurityContext{}},
	} {
		t.Run(name, func(t *testing.T) {
			before := inUse()
			_ = c.into.Unmarshal([]byte(c.raw))
			took := inUse() - before
			runtime.KeepAlive(c.into)
			for _, contentType := range []string{"application/vnd.kubernetes.protobuf", "Application/vnd.Kubernetes.Protobuf ;a=json"} {
				if accounted := accountedFor(t, contentType, inEnvelope(t, c.raw)); accounted < 3*took/2 {
					t.Errorf("%s: a document that takes %d bytes, and again in another version, is accounted with %d", contentType, took, accounted)
				}
			}
		})
	}
}

func TestHostileAYAMLDocumentIsAccountedWithWhatItBecomes(t *testing.T) {
	const n = 20000
	for name, document := range map[string]string{
		"block":          strings.Repeat("-\n", n),
		"flow":           "[" + strings.Repeat("{},", n) + "]",
		"JSON":           `{"a":[` + strings.Repeat("{},", n) + "{}]}",
		"quote in text":  `{a: x", b: [` + strings.Repeat("{},", n) + "]}",
		"quote in words": `{"a": x ", b: [` + strings.Repeat("{},", n) + "]}",
		"other quote":    `{"a": '"', b: [` + strings.Repeat("{},", n) + "]}",
		"comment":        "{ # \"\n a: [" + strings.Repeat("{},", n) + "]}",
		"one line":       strings.Repeat("- ", 5000) + "a",
	} {
		t.Run(name, func(t *testing.T) {
			into := new(any)
			before := inUse()
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Log(err)
			}
			took := inUse() - before
			runtime.KeepAlive(into)
			elements := max(strings.Count(document, "{}"), strings.Count(document, "-"))
			if accounted := accountedFor(t, "application/YAML", document); accounted < took || accounted < int64(elements*elementBytes) {
				t.Errorf("a document of %d elements that takes %d bytes is accounted with %d", elements, took, accounted)
			}
		})
	}
}

// L3 (S2): an alias stands for what its anchor has, which has aliases.
func TestHostileYAMLAliasesAreRefused(t *testing.T) {
	for document, refused := range map[string]bool{
		"a: &a [1]\nb: *a\n":                       true,
		"a: &a [1]\nb: [*a,*a]\n":                  true,
		`{"a":&a "x","b":*a}`:                      true,
		"- &a x\n- *a\n":                           true,
		"a: &a {b: c}\nd:\n  <<: *a\n":             true,
		"a: |\n  * point\n  rm *.txt && ls *foo\n": false,
		`{"a":"&a *a","b":"x *a &a *a"}`:           false,
	} {
		_, err := newDocumentSize("application/apply-patch+yaml").Add([]byte(document))
		if errors.Is(err, errAliases) != refused {
			t.Errorf("%q: %v", document, err)
		}
	}
}

// What usual clients send must not use up their space's memory.
func TestAUsualDocumentIsAccountedWithLittle(t *testing.T) {
	text := strings.Repeat("A line of a file, which has [brackets], {braces} and commas.\n", 16000)
	secret, err := (&corev1.Secret{Data: map[string][]byte{"a": []byte(text)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	quoted := `{"data":{"a":"` + strings.ReplaceAll(text, "\n", `\n`) + `"}}`
	for contentType, document := range map[string]string{
		"application/vnd.kubernetes.protobuf": inEnvelope(t, string(secret)),
		"application/json":                    quoted,
		"application/apply-patch+yaml":        quoted,
	} {
		if size := accountedFor(t, contentType, document); size > 48<<20 {
			t.Errorf("%s: a document of %d bytes is accounted with %d", contentType, len(document), size)
		}
	}
}
