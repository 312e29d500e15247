// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions_test

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/resource"

	"github.com/berth-dev/berth/vcluster/expressions"
)

// L3: all expressions count, in stored objects and in those that are admitted.
func TestExpressionsAreFoundInEachKind(t *testing.T) {
	rules := apiextensionsv1.ValidationRules{{Rule: "true", Message: "no", MessageExpression: "'no'"}}
	nested := &apiextensionsv1.JSONSchemaProps{XValidations: rules, Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"x": {Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{XValidations: rules}}},
	}}
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: nested}},
			{Name: "v2", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: nested}},
		},
	}}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal, nil); err != nil {
		t.Fatal(err)
	}
	if internal.Spec.Validation == nil {
		t.Fatal("the schema of all versions is not in one place")
	}
	conditions := []admissionv1.MatchCondition{{Name: "a", Expression: "true"}, {Name: "b", Expression: "true"}}
	for name, c := range map[string]struct {
		object runtime.Object
		want   expressions.Amount
	}{
		"nothing":                {nil, expressions.Amount{}},
		"pod":                    {&corev1.Pod{}, expressions.Amount{}},
		"definition":             {definition, expressions.Amount{Number: 8, Bytes: 32}},
		"definition, as written": {internal, expressions.Amount{Number: 8, Bytes: 32}},
		"webhooks": {&admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{
			{MatchConditions: conditions, Rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{"*"}}}}},
		}}, expressions.Amount{Number: 2, Bytes: 8}},
		"validating policy": {&admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConditions: conditions, Variables: []admissionv1.Variable{{Name: "x", Expression: "1"}},
			Validations:      []admissionv1.Validation{{Expression: "true", MessageExpression: "'no'"}},
			AuditAnnotations: []admissionv1.AuditAnnotation{{Key: "k", ValueExpression: "'v'"}},
		}}, expressions.Amount{Number: 6, Bytes: 20}},
		"mutating policy": {&admissionregistration.MutatingAdmissionPolicy{Spec: admissionregistration.MutatingAdmissionPolicySpec{
			Mutations: []admissionregistration.Mutation{
				{ApplyConfiguration: &admissionregistration.ApplyConfiguration{Expression: "Object{}"}}, {JSONPatch: &admissionregistration.JSONPatch{Expression: "[]"}},
			},
		}}, expressions.Amount{Number: 2, Bytes: 10}},
		"device class": {&resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "true"}}},
		}}, expressions.Amount{Number: 1, Bytes: 4}},
		"claim": {&resource.ResourceClaim{Spec: resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: []resource.DeviceRequest{
			{Exactly: &resource.ExactDeviceRequest{Selectors: []resource.DeviceSelector{{CEL: &resource.CELDeviceSelector{Expression: "true"}}}}},
		}}}}, expressions.Amount{Number: 1, Bytes: 4}},
	} {
		if got := expressions.In(c.object); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
