// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/process"
)

// decide has a policy with variables decide about a config map, in a space with so much memory for requests. It returns what it
// decides, and why.
func decide(t *testing.T, memory int64, variables int, variable string) (says string) {
	t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}
	var uses []string
	for i := range variables {
		name := fmt.Sprintf("v%d", i)
		p.Spec.Variables = append(p.Spec.Variables, admissionv1.Variable{Name: name, Expression: variable})
		uses = append(uses, "variables."+name+" != ''")
	}
	p.Spec.Validations = []admissionv1.Validation{{Expression: strings.Join(uses, " && "), MessageExpression: "variables.v0 == '' ? 'a' : 'b'"}}
	p.Spec.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "k", ValueExpression: "'v'"}}
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "m", Expression: "request.operation == 'CREATE'"}}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"x": strings.Repeat("a", 2800)}}
	kind, resource := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithResource("configmaps")
	a := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(m, nil, kind, "default", "m", resource, "", admission.Create, &metav1.CreateOptions{}, false, nil), VersionedKind: kind, VersionedObject: admission.NewLazyObject(m),
	}
	account := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: memory})
	request := account.Reserve(bounds.MemoryBytes, 0)
	defer request.End()
	result := compileValidations(p).Validate(bounds.WithReservation(t.Context(), request), resource, a, nil, &corev1.Namespace{}, celconfig.RuntimeCELCostBudget, nil)
	for _, d := range result.Decisions {
		_, reason, _ := strings.Cut(d.Message, "resulted in error: ")
		says += string(d.Action) + " " + cmp.Or(reason, d.Message) + "\n"
	}
	if held := request.Held(); held != 0 {
		t.Errorf("values have %d bytes after the policy has decided", held)
	}
	return says
}

// L3: what a policy's variables cost is counted when an expression has ended. One expression kept 200 texts of 7.8 MB in memory.
func TestHostileVariablesOfPoliciesAreAccounted(t *testing.T) {
	if err := process.Prepare(); err != nil {
		t.Fatal(err)
	}
	const large = "object.data.x.replace('a', object.data.x)"
	if says := decide(t, 32<<20, 8, large); !strings.Contains(says, "memory-bytes") {
		t.Errorf("values beyond the request's memory: %.200s", says)
	}
	if says := decide(t, 1<<30, 200, large); !strings.Contains(says, "cost budget") {
		t.Errorf("values beyond the policy's budget: %s", says)
	}
	if says := decide(t, 1<<20, 200, "object.data.x"); !strings.HasPrefix(says, "admit") {
		t.Errorf("small values: %s", says)
	}
}
