// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// X2, O6: an owner's kubeconfig is of the owner, and of nobody else who has rights.
func TestOwnersAuthenticateAsThemselves(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		owner  v1alpha1.Subject
		user   string
		groups []string
		fails  string
	}{
		"a user":             {"it counts by its group", v1alpha1.Subject{Kind: v1alpha1.UserKind, Name: "alice"}, "alice", []string{"berth.dev"}, ""},
		"a group":            {"a user of its own is in it", v1alpha1.Subject{Kind: v1alpha1.GroupKind, Name: "devs"}, "berth:group:devs", []string{"berth.dev", "devs"}, ""},
		"the owners' group":  {"once is enough", v1alpha1.Subject{Kind: v1alpha1.GroupKind, Name: "berth.dev"}, "berth:group:berth.dev", []string{"berth.dev"}, ""},
		"an account":         {"it has tokens", v1alpha1.Subject{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:a:b"}, "", nil, "uses its tokens"},
		"Kubernetes' admins": {"no rule limits them", v1alpha1.Subject{Kind: v1alpha1.GroupKind, Name: "system:masters"}, "", nil, "Kubernetes reserves"},
		"a component":        {"it has rights of its own", v1alpha1.Subject{Kind: v1alpha1.UserKind, Name: "system:kube-scheduler"}, "", nil, "Kubernetes reserves"},
		"Berth's admins":     {"no rule limits them", v1alpha1.Subject{Kind: v1alpha1.GroupKind, Name: AdminGroup}, "", nil, "Berth reserves"},
		"a group's user":     {"it would be the group's", v1alpha1.Subject{Kind: v1alpha1.UserKind, Name: "berth:group:devs"}, "", nil, "Berth reserves"},
		"a long group":       {"its user would be too long", v1alpha1.Subject{Kind: v1alpha1.GroupKind, Name: strings.Repeat("x", 250)}, "", nil, "at most 241 bytes"},
		"no kind":            {"nobody is that", v1alpha1.Subject{Name: "alice"}, "", nil, "must be User or Group"},
		"no name":            {"nobody is that", v1alpha1.Subject{Kind: v1alpha1.UserKind}, "", nil, "must not be empty"},
	} {
		user, groups, err := OwnerUser(c.owner)
		if user != c.user || !slices.Equal(groups, c.groups) || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s (%s) is %q of %q: %v", name, c.reason, user, groups, err)
		}
	}
}

func TestOwnersBeyondTheLimitAreCounted(t *testing.T) {
	access := &v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.GroupKind, Name: "system:masters"}, {Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:a:b"}}}
	for i := range MaxOwners + 3 {
		access.Owners = append(access.Owners, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: fmt.Sprintf("user-%d", i)})
	}
	owners, left := IssuableOwners(access)
	if len(owners) != MaxOwners || owners[0].Name != "user-0" || left != 3 {
		t.Errorf("%d owners, the first of whom is %v, get a kubeconfig, and %d don't", len(owners), owners[0], left)
	}
}

// S3 (X2): the chart's admission policy tells Berth's Secrets by this form.
func TestSecretsOfOwnersHaveNamesOfTheirOwn(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9-]+---[a-z2-7]{26}$`)
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.StringMatching(`[a-z]([-a-z0-9]{0,55}[a-z0-9])?`).Draw(t, "space")
		owner := v1alpha1.Subject{
			Kind: rapid.SampledFrom([]v1alpha1.SubjectKind{v1alpha1.UserKind, v1alpha1.GroupKind}).Draw(t, "kind"),
			Name: rapid.OneOf(rapid.StringN(1, 253, 253), rapid.SampledFrom([]string{"a", "A", "a-owner-a", "-", "--", "Ä", "a@b.c"})).Draw(t, "owner"),
		}
		name := ownerSecretName(space, owner)
		if !strings.HasPrefix(name, space+"-owner") || !form.MatchString(name) || len(name) > 253 {
			t.Errorf("the Secret of %v is %s", owner, name)
		}
		id := fmt.Sprintf("%q %q %q", space, owner.Kind, owner.Name)
		if other, ok := seen[name]; ok && other != id {
			t.Errorf("%s and %s share %s", id, other, name)
		}
		seen[name] = id
	})
	if name := ownerSecretName("solar", v1alpha1.Subject{Kind: v1alpha1.UserKind, Name: "Alice@example.com"}); !strings.HasPrefix(name, "solar-owner-alice-example-com---") {
		t.Errorf("the name can't be read: %s", name)
	}
}
