// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions_test

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/definitions"
)

// TestGetMatchingCRDFollowsTheTable has each row of GetMatchingCRD in the design of Arktos (C2, C3, C4).
func TestGetMatchingCRDFollowsTheTable(t *testing.T) {
	t.Parallel()
	const (
		never  = definitions.NeverUseSystemCRDUnlessForced
		system = definitions.SystemCRDFirst
		local  = definitions.LocalCRDFirst
	)
	type shared int
	const (
		none shared = iota
		outOfRange
		inRange
		forced
		forcedOutOfRange
	)
	type found string
	const (
		nothing  found = "nothing"
		isLocal  found = "local"
		isShared found = "shared"
	)
	for _, row := range []struct {
		policy definitions.Policy
		local  bool
		shared shared
		want   found
		reason definitions.Reason
	}{
		{never, false, forced, isShared, definitions.Forced},
		{never, true, forced, isShared, definitions.Forced},
		{system, false, forced, isShared, definitions.Forced},
		{system, true, forced, isShared, definitions.Forced},
		{local, false, forced, isShared, definitions.Forced},
		{local, true, forced, isShared, definitions.Forced},
		{never, true, forcedOutOfRange, isShared, definitions.Forced},
		{system, true, forcedOutOfRange, isShared, definitions.Forced},
		{local, true, forcedOutOfRange, isShared, definitions.Forced},

		{never, true, none, isLocal, definitions.OnlyLocal},
		{never, true, outOfRange, isLocal, definitions.OnlyLocal},
		{never, true, inRange, isLocal, definitions.NeverShared},
		{never, false, none, nothing, definitions.NotFound},
		{never, false, outOfRange, nothing, definitions.NotFound},
		{never, false, inRange, nothing, definitions.NeverShared},

		{system, true, inRange, isShared, definitions.SystemFirst},
		{system, false, inRange, isShared, definitions.OnlyShared},
		{system, true, outOfRange, isLocal, definitions.OnlyLocal},
		{system, true, none, isLocal, definitions.OnlyLocal},
		{system, false, outOfRange, nothing, definitions.NotFound},
		{system, false, none, nothing, definitions.NotFound},

		{local, true, inRange, isLocal, definitions.LocalFirst},
		{local, true, outOfRange, isLocal, definitions.OnlyLocal},
		{local, true, none, isLocal, definitions.OnlyLocal},
		{local, false, inRange, isShared, definitions.OnlyShared},
		{local, false, outOfRange, nothing, definitions.NotFound},
		{local, false, none, nothing, definitions.NotFound},

		{"", true, inRange, isLocal, definitions.LocalFirst}, // the default
		{"", false, inRange, isShared, definitions.OnlyShared},
	} {
		var own *apiextensionsv1.CustomResourceDefinition
		if row.local {
			own = &apiextensionsv1.CustomResourceDefinition{}
		}
		var theirs *definitions.Shared
		if row.shared != none {
			theirs = &definitions.Shared{
				CRD:     &apiextensionsv1.CustomResourceDefinition{},
				Forced:  row.shared == forced || row.shared == forcedOutOfRange,
				InRange: row.shared == inRange || row.shared == forced,
			}
		}
		have := definitions.GetMatchingCRD(own, theirs, row.policy)
		got := nothing
		switch {
		case have.CRD != nil && have.CRD == own && !have.Shared:
			got = isLocal
		case theirs != nil && have.CRD == theirs.CRD && have.Shared:
			got = isShared
		case have.CRD != nil || have.Shared:
			t.Errorf("policy %q, local %v, shared %d: inconsistent match %+v", row.policy, row.local, row.shared, have)
		}
		if got != row.want || have.Reason != row.reason {
			t.Errorf("policy %q, local %v, shared %d: %s is in force because of %s, want %s because of %s",
				row.policy, row.local, row.shared, got, have.Reason, row.want, row.reason)
		}
	}
}

// TestNoSwitchOfThePolicyChangesWhatIsFoundAfterwards draws policies and shares: what is in force depends on the present ones only,
// and a definition that is neither forced nor in range changes nothing (C4, C5).
func TestNoSwitchOfThePolicyChangesWhatIsFoundAfterwards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]definitions.Policy{
			"", definitions.LocalCRDFirst, definitions.SystemCRDFirst, definitions.NeverUseSystemCRDUnlessForced,
		})
		var local *apiextensionsv1.CustomResourceDefinition
		if rapid.Bool().Draw(t, "local") {
			local = &apiextensionsv1.CustomResourceDefinition{}
		}
		shared := &definitions.Shared{
			CRD: &apiextensionsv1.CustomResourceDefinition{}, Forced: rapid.Bool().Draw(t, "forced"), InRange: rapid.Bool().Draw(t, "in range"),
		}
		first, other := policy.Draw(t, "first"), policy.Draw(t, "other")
		before := definitions.GetMatchingCRD(local, shared, first)
		between := definitions.GetMatchingCRD(local, shared, other)
		set := definitions.NewSet(first, shared)
		back := set.WithPolicy(other).WithPolicy(first)
		for _, own := range []bool{false, true} {
			was, is := set.InForce("", own), back.InForce("", own)
			if set.Version() != back.Version() || was.Shared != is.Shared || was.Reason != is.Reason || !set.SameOf("", back) {
				t.Fatalf("there and back, with own definition %v: %s, before %s", own, is.Reason, was.Reason)
			}
		}
		if shared.Forced && (before != between || before.CRD != shared.CRD) {
			t.Fatalf("a forced definition depends on the policy: %+v, %+v", before, between)
		}
		if !shared.Forced && !shared.InRange && before != definitions.GetMatchingCRD(local, nil, first) {
			t.Fatalf("a definition that isn't shared with the space matters: %+v", before)
		}
		if local != nil && before.CRD == nil {
			t.Fatalf("the space has a definition, and none is in force: %+v", before)
		}
	})
}
