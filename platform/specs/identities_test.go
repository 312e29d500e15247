// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

func accountsSynced(value string) []v1alpha1.SyncOption {
	return []v1alpha1.SyncOption{{Resource: "serviceaccounts", Value: value}}
}

// M4: a space has the identities of the defaults, and its own in place of those for the same annotation. By default, it has none.
func TestIdentitiesOfASpaceReplaceThoseOfTheDefaults(t *testing.T) {
	const role, client = "cloud.example.com/role", "cloud.example.com/client"
	s, err := New(&Options{
		ReservedLabels: []string{"example.com"},
		SpaceDefaults: v1alpha1.SpaceSpec{Sync: accountsSynced("on"), WorkloadIdentity: []v1alpha1.WorkloadIdentity{
			{Annotation: role, Values: []string{"usual-*"}}, {Annotation: client, Values: []string{"17"}, PodLabels: map[string]v1alpha1.LabelValue{"cloud.example.com/use": "true"}},
		}},
		Spaces: []v1alpha1.Space{space("team-a", v1alpha1.SpaceSpec{WorkloadIdentity: []v1alpha1.WorkloadIdentity{{Annotation: role, Values: []string{"own-*"}}}})},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := workloadidentity.Rules{{Annotation: role, Values: []string{"own-*"}}, {Annotation: client, Values: []string{"17"}, PodLabels: map[string]string{"cloud.example.com/use": "true"}}}
	if diff := cmp.Diff(want, s.Objects("team-a").WorkloadIdentity); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	none, err := New(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rules := none.Objects("team-a").WorkloadIdentity; len(rules) > 0 {
		t.Errorf("by default, a space has %v", rules)
	}
}

func many(key string, n int) (all []v1alpha1.WorkloadIdentity) {
	for i := range n {
		all = append(all, v1alpha1.WorkloadIdentity{Annotation: fmt.Sprintf("cloud.example.com/%s-%d", key, i), Values: []string{"17"}})
	}
	return all
}

func TestWrongIdentitiesAreRejectedWithTheirField(t *testing.T) {
	roles := []v1alpha1.WorkloadIdentity{{Annotation: "cloud.example.com/role", Values: []string{"own-*"}}}
	labeled := []v1alpha1.WorkloadIdentity{{Annotation: "cloud.example.com/role", Values: []string{"own-*"}, PodLabels: map[string]v1alpha1.LabelValue{"cloud.example.com/use": "true"}}}
	const others = "podLabels[cloud.example.com/use]: Forbidden: pods of other spaces may have the label cloud.example.com/use on the host, too; add its domain to reservedLabels"
	for want, options := range map[string]Options{
		"spaceDefaults.workloadIdentity: Forbidden: the space's pods have no service accounts of their own": {SpaceDefaults: v1alpha1.SpaceSpec{WorkloadIdentity: roles}},
		"spaces[0].spec.workloadIdentity: Forbidden":                                                        {Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{WorkloadIdentity: roles})}},
		`set the sync option serviceaccounts to "on"`: {
			SpaceDefaults: v1alpha1.SpaceSpec{Sync: accountsSynced("on"), WorkloadIdentity: roles}, Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{Sync: accountsSynced("off")})},
		},
		"spaces[0].spec.workloadIdentity: Invalid value: 9: a space has 8 entries at most, with those of spaceDefaults": {
			SpaceDefaults: v1alpha1.SpaceSpec{Sync: accountsSynced("on"), WorkloadIdentity: many("usual", 5)}, Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{WorkloadIdentity: many("own", 4)})},
		},
		"spaceDefaults.workloadIdentity[0]." + others: {SpaceDefaults: v1alpha1.SpaceSpec{Sync: accountsSynced("on"), WorkloadIdentity: labeled}},
		"spaces[0].spec.workloadIdentity[0]." + others: {
			ReservedLabels: []string{"other.example.com", "example.com/use"},
			SpaceDefaults:  v1alpha1.SpaceSpec{Sync: accountsSynced("on")}, Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{WorkloadIdentity: labeled})},
		},
		"spaces[0].spec.workloadIdentity[0].values[0]: Invalid value: \"*\"": {SpaceDefaults: v1alpha1.SpaceSpec{Sync: accountsSynced("on")}, Spaces: []v1alpha1.Space{
			space("a", v1alpha1.SpaceSpec{WorkloadIdentity: []v1alpha1.WorkloadIdentity{{Annotation: "cloud.example.com/role", Values: []string{"*"}}}}),
		}},
	} {
		if _, err := New(&options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
