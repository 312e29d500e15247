// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// exploding takes upstream 0.3 s to parse, and 1e-300000000 minutes and gigabytes.
const exploding = "1e-5000000"

// wantRefusedQuantity reports a request that was not refused for a quantity.
func wantRefusedQuantity(t *testing.T, name string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "limit quantity-digits") {
		t.Errorf("%s: %.300v", name, err)
	}
}

// makeQuotaWithTexts makes a quota that holds a hostile text where it does no harm, and a usual one where it could.
func makeQuotaWithTexts(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q", Annotations: map[string]string{"a": exploding}, Labels: map[string]string{"commit": "12e34567"}},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": quantity("1234567890")}},
	}
	if _, err := client.CoreV1().ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// L3: a quantity with a large exponent is refused before it is parsed, which nothing interrupts, in any encoding.
func TestHostileQuantitiesAreRefusedBeforeTheyAreParsed(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	makeQuotaWithTexts(t, client)
	quota, err := client.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
		var body bytes.Buffer
		if err := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(quota, &body); err != nil {
			t.Fatal(err)
		}
		hostile := bytes.Replace(body.Bytes(), []byte("1234567890"), []byte(exploding), 1)
		rest := client.CoreV1().RESTClient()
		update := rest.Put().Namespace("default").Resource("resourcequotas").Name("q").SetHeader("Content-Type", media)
		err := update.Body(hostile).Do(t.Context()).Error()
		wantRefusedQuantity(t, "update in "+media, err)
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "spec.hard.pods") {
			t.Errorf("%s: %v", media, err)
		}
		create := rest.Post().Namespace("default").Resource("resourcequotas").SetHeader("Content-Type", media)
		wantRefusedQuantity(t, "create in "+media, create.Body(hostile).Do(t.Context()).Error())
		if err := update.Body(body.Bytes()).Do(t.Context()).Error(); err != nil && !apierrors.IsConflict(err) {
			t.Errorf("%s: a usual update: %v", media, err)
		}
	}
}

// The same in patches, among them one that copies a text to where a quantity is.
func TestHostileQuantitiesInPatchesAreRefused(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	makeQuotaWithTexts(t, client)
	quotas, force := client.CoreV1().ResourceQuotas("default"), true
	const hard = `{"hard":{"pods":"` + exploding + `"}}`
	apply := `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":` + hard + `}`
	for name, c := range map[string]struct {
		object string
		kind   types.PatchType
		patch  string
	}{
		"JSON patch":                        {"q", types.JSONPatchType, `[{"op":"replace","path":"/spec","value":` + hard + `}]`},
		"a copy":                            {"q", types.JSONPatchType, `[{"op":"copy","from":"/metadata/annotations/a","path":"/spec/hard/pods"}]`},
		"merge patch":                       {"q", types.MergePatchType, `{"spec":` + hard + `}`},
		"strategic merge patch":             {"q", types.StrategicMergePatchType, `{"spec":` + hard + `}`},
		"server-side apply":                 {"q", types.ApplyYAMLPatchType, apply},
		"server-side apply of a new object": {"n", types.ApplyYAMLPatchType, strings.Replace(apply, `"q"`, `"n"`, 1)},
		"server-side apply of YAML":         {"q", types.ApplyYAMLPatchType, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard:\n    pods: \"\\x31e-5000000\"\n"},
	} {
		options := metav1.PatchOptions{}
		if c.kind == types.ApplyYAMLPatchType {
			options = metav1.PatchOptions{FieldManager: "test", Force: &force}
		}
		_, err := quotas.Patch(t.Context(), c.object, c.kind, []byte(c.patch), options)
		wantRefusedQuantity(t, name, err)
		if _, err := quotas.Patch(t.Context(), c.object, c.kind, bytes.ReplaceAll(bytes.ReplaceAll([]byte(c.patch), []byte(exploding), []byte("12")),
			[]byte(`\x31e-5000000`), []byte(`\x31`)), options); err != nil && name != "a copy" {
			t.Errorf("%s with a usual quantity: %v", name, err)
		}
	}
}

// The same in what policies make.
func TestHostileQuantitiesThatPoliciesMakeAreRefused(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	apply := func(pods string) admissionv1.Mutation {
		return admissionv1.Mutation{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
			Expression: `Object{spec: Object.spec{hard: {"pods": "` + pods + `"}}}`,
		}}
	}
	for name, c := range map[string]struct {
		mutation admissionv1.Mutation
		says     string
	}{
		"add":     {jsonMutation(`[JSONPatch{op: "add", path: "/spec/hard/pods", value: "1" + "e-5000000"}]`), "limit quantity-digits"},
		"copy":    {jsonMutation(`[JSONPatch{op: "copy", from: "/metadata/annotations/a", path: "/spec/hard/pods"}]`), "use add, with the value"},
		"applied": {apply(exploding), "limit quantity-digits"},
		"usual":   {jsonMutation(`[JSONPatch{op: "add", path: "/spec/hard/pods", value: "12"}]`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			mutate(t, client, name, c.mutation)
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "q-", Annotations: map[string]string{"a": exploding}, Labels: map[string]string{"policy": name}},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": quantity("1")}},
			}
			eventually(t, func() error {
				made, err := client.CoreV1().ResourceQuotas("default").Create(t.Context(), quota, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				switch {
				case c.says == "" && (err != nil || made.Spec.Hard.Pods().Value() != 12):
					return fmt.Errorf("it is not patched: %w", err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
					return fmt.Errorf("it gets %w", err)
				}
				return nil
			})
		})
	}
}
