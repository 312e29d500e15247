// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// T3, H7: what keeps tenants from being deleted by mistake is in the chart as the operator has it.
func TestTheChartTakesFromTheCodeWhichTenantsStay(t *testing.T) {
	const file, source = "berth/files/tenant-policies.yaml", "../operator/policies/policies.yaml"
	want, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	want = append([]byte("# Written by `go generate ./charts` from operator/policies.\n"), want...)
	if os.Getenv(envUpdate) != "" {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Errorf("%s is stale; run: go generate ./charts\n%s", file, diff)
	}
	objects, policies := render(t), 0
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(want)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		prefixed := func(name string) string { return "platform-berth-" + strings.TrimPrefix(name, "berth-") }
		var wanted, made runtime.Object
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies++
			made = &admissionv1.ValidatingAdmissionPolicy{Spec: find(t, objects, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == prefixed(o.Name) }).Spec}
			wanted = &admissionv1.ValidatingAdmissionPolicy{Spec: o.Spec}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			made = &admissionv1.ValidatingAdmissionPolicyBinding{Spec: find(t, objects, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool { return b.Name == prefixed(o.Name) }).Spec}
			o.Spec.PolicyName = prefixed(o.Spec.PolicyName)
			wanted = &admissionv1.ValidatingAdmissionPolicyBinding{Spec: o.Spec}
		}
		if diff := cmp.Diff(wanted, made); diff != "" {
			t.Errorf("-code +chart:\n%s", diff)
		}
	}
	if policies == 0 {
		t.Error("there are no policies")
	}
}
