// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// O1, O8, T8: what a space enforces of its tenant neither restarts it nor its process, and needs nothing on the host.
func TestChangesTakeEffectWithAsLittleAsTheyNeed(t *testing.T) {
	const nothing, follow, inPlace, restart = "nothing", "follow", "in place", "restart"
	for name, c := range map[string]struct {
		change            func(*v1alpha1.SpaceSpec)
		shared, dedicated string
	}{
		"nothing":         {func(*v1alpha1.SpaceSpec) {}, nothing, nothing},
		"deletion policy": {func(s *v1alpha1.SpaceSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }, nothing, nothing},
		"owners": {func(s *v1alpha1.SpaceSpec) {
			s.Access.Owners = []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}}
		}, follow, follow},
		"cordon":       {func(s *v1alpha1.SpaceSpec) { s.Access.Cordoned = ptr.To(true) }, follow, follow},
		"namespaces":   {func(s *v1alpha1.SpaceSpec) { s.Namespaces.Quota = ptr.To[int32](1) }, follow, follow},
		"tenant":       {func(s *v1alpha1.SpaceSpec) { s.TenantName = "solar" }, restart, restart}, // whose quota it is in
		"publications": {func(s *v1alpha1.SpaceSpec) { s.Publications = []string{"a"} }, follow, follow},
		"quota": {func(s *v1alpha1.SpaceSpec) {
			s.Quota = map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("1")}
		}, inPlace, restart},
		"quota and owners": {func(s *v1alpha1.SpaceSpec) {
			s.Quota, s.Access.Cordoned = map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("1")}, ptr.To(true)
		}, inPlace, restart},
		"nodes": {func(s *v1alpha1.SpaceSpec) { s.Nodes.Selector = map[string]string{"a": "b"} }, restart, restart},
	} {
		for isolation, want := range map[v1alpha1.Isolation]string{v1alpha1.Shared: c.shared, v1alpha1.Dedicated: c.dedicated} {
			before := &applied{Spec: v1alpha1.SpaceSpec{Isolation: isolation}}
			after := &applied{Spec: *before.Spec.DeepCopy()}
			c.change(&after.Spec)
			got := restart
			switch {
			case before.runsLike(&after.Spec):
				got = nothing
			case before.isEnforcedAs(after):
				got = follow
			case before.runsInPlace(&after.Spec):
				got = inPlace
			}
			if got != want {
				t.Errorf("a change of %s of a %s space: %s, want %s", name, isolation, got, want)
			}
			before.partly = true
			if before.isEnforcedAs(after) {
				t.Errorf("after a failure, a change of %s of a %s space leaves the rest as it is", name, isolation)
			}
		}
	}
}
