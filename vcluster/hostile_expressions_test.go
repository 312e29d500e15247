// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// tenantExpressions makes objects of all kinds with as many CEL expressions as are given, called name, and returns what each
// gets. Nothing is stored of them.
func tenantExpressions(t *testing.T, config *rest.Config, expressions ...string) map[string]error {
	t.Helper()
	client := clientset(t, config)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	crd := definition("one", 10)
	webhook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}
	for i, e := range expressions {
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		schema.XValidations = append(schema.XValidations, apiextensionsv1.ValidationRule{Rule: "self.metadata.name." + e})
		if i%64 == 0 { // as many conditions a webhook may have
			webhook.Webhooks = append(webhook.Webhooks, admissionv1.ValidatingWebhook{
				Name: fmt.Sprintf("hostile-%d.example.com", i), ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://203.0.113.1")},
				SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			})
		}
		last := &webhook.Webhooks[len(webhook.Webhooks)-1]
		last.MatchConditions = append(last.MatchConditions, admissionv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: "request.name." + e})
		if i < 32 { // as many selectors a class may have
			class.Spec.Selectors = append(class.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver." + e}})
		}
	}
	got := map[string]error{}
	_, got["definition"] = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, dry)
	_, got["policy"] = client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy("hostile", expressions...), dry)
	_, got["webhook"] = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), webhook, dry)
	_, got["device class"] = client.ResourceV1().DeviceClasses().Create(t.Context(), class, dry)
	return got
}

func policy(name string, expressions ...string) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps", "resourcequotas"}},
		}}}},
	}}
	for _, e := range expressions {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: "object.metadata.name." + e})
	}
	return p
}

// L3: an expression of 21 KB has the API server keep 136 MiB, and one of twenty bytes 50 KiB: their regular expressions are
// bounded, and so is their number, before anything compiles them.
func TestHostileExpressionsAreBoundedWhereverTheyStand(t *testing.T) {
	_, _, config := bounded(t, nil)
	for kind, err := range tenantExpressions(t, config, "matches('"+strings.Repeat("a{1000}", 10)+"')") {
		if err == nil || !strings.Contains(err.Error(), "limit pattern-instructions") {
			t.Errorf("%s with a large regular expression: %v", kind, err)
		}
	}
	for kind, err := range tenantExpressions(t, config, "matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')") {
		if err != nil {
			t.Errorf("%s with a usual regular expression: %v", kind, err)
		}
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf("size() != %d", i)
	}
	for kind, err := range tenantExpressions(t, config, many...) {
		if kind == "device class" {
			continue // upstream bounds the number of its selectors
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit object-expressions") {
			t.Errorf("%s with %d expressions: %v", kind, len(many), err)
		}
	}
}

// L3: what it takes to compile expressions is the request's.
func TestHostileExpressionsAreAccountedToTheirRequest(t *testing.T) {
	_, _, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 4 << 20})
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf("size() != %d", i)
	}
	for kind, err := range tenantExpressions(t, config, many...) {
		if kind == "device class" {
			continue // it has 32
		}
		if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "memory-bytes") {
			t.Errorf("%s with %d expressions: %v", kind, len(many), err)
		}
	}
}

// L3: what an API server keeps of expressions is bounded for all objects together, after a restart, too.
func TestHostileExpressionsOfASpaceAreBounded(t *testing.T) {
	endpoint := newTestGateway(t)
	c := endpoint.config(t, "expressions")
	c.Controllers, c.Account = nil, bounds.NewAccount(bounds.Limits{bounds.SchemaBytes: 64 << 10})
	p := endpoint.start(t, c)
	config := admin(t, p)
	policies := clientset(t, config).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	create := func(name string, n int) error {
		v := policy(name)
		for i := range n {
			v.Spec.Validations = append(v.Spec.Validations, admissionv1.Validation{Expression: fmt.Sprintf("object.metadata.name != '%d'", i)})
		}
		_, err := policies.Create(t.Context(), v, metav1.CreateOptions{})
		return err
	}
	tooMuch := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "schema-bytes") {
			t.Errorf("%s gets %v", what, err)
		}
	}
	if err := create("one", 10); err != nil {
		t.Fatal(err)
	}
	tooMuch("the second policy of 10 expressions", create("two", 10))
	used := c.Account.Used(bounds.SchemaBytes)
	stop(t, p)
	c.Account = bounds.NewAccount(bounds.Limits{bounds.SchemaBytes: 64 << 10})
	endpoint.start(t, c)
	tooMuch("after a restart it", create("two", 10))
	if again := c.Account.Used(bounds.SchemaBytes); again != used {
		t.Errorf("after a restart %d bytes are in use, before it were %d", again, used)
	}
	if err := policies.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := create("two", 10); err != nil {
		t.Error(err)
	}
}

// L3: a regular expression that a request brings is refused as it is used.
func TestHostileRegularExpressionsOfRequestsAreBounded(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	bind(t, client, policy("dynamic", "matches(object.data.pattern)"))
	create := func(pattern string) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Data: map[string]string{"pattern": pattern}}
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, func() error {
		if err := create("^other$"); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a name that does not match gets %w", err)
		}
		return nil
	})
	if err := create("^web-[0-9]{1,3}$"); err != nil {
		t.Error(err)
	}
	if err := create(strings.Repeat("a{1000}", 10)); err == nil || !strings.Contains(err.Error(), "limit pattern-instructions") {
		t.Errorf("a large regular expression gets %v", err)
	}
}

// bind puts a policy in force.
func bind(t *testing.T, client kubernetes.Interface, p *admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: p.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
