// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// S3, M4: whatever a tenant writes, its class on the host is under its own name,
// no higher than the bound, and preempts only if it may. Its pods and those of
// other spaces don't preempt each other, unless its nodes are its own.
func TestAnOwnPriorityIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &schedulingv1.PriorityClass{
			ObjectMeta:       metav1.ObjectMeta{Name: rapid.StringMatching(`[a-z]([a-z0-9-]{0,20}[a-z0-9])?`).Draw(t, "name"), UID: "u", Labels: map[string]string{"a": "b"}},
			Value:            rapid.Int32().Draw(t, "value"),
			GlobalDefault:    rapid.Bool().Draw(t, "default"),
			PreemptionPolicy: ptr.To(rapid.SampledFrom([]corev1.PreemptionPolicy{corev1.PreemptNever, corev1.PreemptLowerPriority}).Draw(t, "policy")),
		}
		highest, preempt := rapid.Int32Range(0, 1_000_000_000).Draw(t, "highest"), rapid.Bool().Draw(t, "preempt")
		space := Space{Name: "demo", Settings: Settings{Priorities: Priorities{OwnNodes: rapid.Bool().Draw(t, "own nodes")}}}
		host := space.ExportedPriorityClass(v, highest, preempt)
		if host.Value > highest || host.Value > max(0, v.Value) || host.GlobalDefault || host.Namespace != "" || host.Labels["a"] != "" {
			t.Errorf("%v becomes %v", v, host)
		}
		if *host.PreemptionPolicy != corev1.PreemptNever && (!preempt || *v.PreemptionPolicy == corev1.PreemptNever) {
			t.Errorf("it preempts: %v", host)
		}
		if !space.Settings.Priorities.Spares(host) {
			t.Errorf("it preempts pods of others, or is preempted: %v", host)
		}
		if id, ok := IdentityOf(host); !ok || id != (Identity{Space: "demo", Name: v.Name, UID: "u"}) {
			t.Errorf("it is %v's", id)
		}
	})
}
