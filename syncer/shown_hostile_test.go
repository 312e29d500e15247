// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
)

// L3, C6: a tenant whose policy changes each update of an object that the space shows, also that by which the syncer undoes a change, has
// the syncer write it once in a pause, however often the tenant changes it, too.
func TestHostilePoliciesDoNotHaveShownObjectsWrittenWithoutEnd(t *testing.T) {
	t.Parallel()
	env := showsOffers(t, "shown-policy")
	now := clocktesting.NewFakePassiveClock(time.Now())
	env.clock = now
	env.offer("one")
	env.count()
	env.shows("one", "1")
	env.changeEachUpdate()

	undone := func() int { return env.written()[http.MethodPut+" /one"] }
	if undone() != 0 {
		t.Fatalf("%v before the attack", env.written())
	}
	for round := range 3 {
		for i := range 20 {
			env.touch("one", fmt.Sprint(i))
		}
		env.idle(t)
		if undone() != round {
			t.Fatalf("without a pause, the changes of the tenant are undone: %d times, want %d", undone(), round)
		}
		now.SetTime(now.Now().Add(time.Second))
		testhost.Eventually(t, "undo the change after the pause", func(context.Context) error {
			if undone() <= round {
				return errors.New("it is not undone")
			}
			return nil
		})
	}
	env.idle(t)
	if undone() != 3 {
		t.Errorf("the changes are undone %d times in 3 pauses", undone())
	}
}

// changeEachUpdate installs a policy of the tenant that gives an offer another annotation at each update, and waits until it is in force.
func (env *shownEnv) changeEachUpdate() {
	env.t.Helper()
	meta := metav1.ObjectMeta{Name: "changes"}
	policies := env.virtual.AdmissionregistrationV1()
	must(env.t, policies.MutatingAdmissionPolicies().Create, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{env.d.GVR.Group}, APIVersions: []string{"v1"}, Resources: []string{"offers"}},
		}}}},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"turn": oldObject.metadata.?annotations.?turn.orValue("") == "a" ? "b" : "a"}}]`,
		}}},
	}})
	must(env.t, policies.MutatingAdmissionPolicyBindings().Create, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
	})
	testhost.Eventually(env.t, "have the policy in force", func(context.Context) error {
		if env.touch("one", "tried", client.DryRunAll).GetAnnotations()["turn"] == "" {
			return errors.New("it is not yet")
		}
		return nil
	})
}

// touch changes a declared field of an offer in the space, as a tenant.
func (env *shownEnv) touch(name, note string, opts ...client.PatchOption) *unstructured.Unstructured {
	env.t.Helper()
	v := env.d.New()
	v.SetName(name)
	if err := env.inSpace.Patch(env.t.Context(), v, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"note":%q}}`, note)), opts...); err != nil {
		env.t.Fatal(err)
	}
	return v
}
