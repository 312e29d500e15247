// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	hostv1alpha1 "github.com/berth-dev/berth/api/v1alpha1"
)

// listing lists rules, and counts how often it is asked.
type listing struct {
	in          map[string][]authorizer.ResourceRuleInfo
	byWebhook   string // a verb that only the webhook allows
	asked, read int
}

// RulesFor implements [authorizer.RuleResolver].
func (l *listing) RulesFor(_ context.Context, _ user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	l.read++
	return l.in[namespace], nil, false, nil
}

func (l *listing) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	l.asked++
	if l.byWebhook != "" && a.GetVerb() == l.byWebhook {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func words(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

func gives(ctx context.Context, t *testing.T, l *listing, u user.Info, rules ...v1alpha1.TenantAccessRule) error {
	t.Helper()
	source := &access.Source{}
	source.Set(&access.State{Space: "solar", Tenant: "solar", Access: hostv1alpha1.Access{Owners: []hostv1alpha1.Owner{{Kind: hostv1alpha1.UserKind, Name: "owner"}}}})
	p := newPlugin(source, nil)
	p.tenant, p.all, p.rules = &Authorizer{source: source}, authorizer.AuthorizerFunc(l.authorize), l
	object := &v1alpha1.TenantAccess{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.TenantAccessSpec{Subjects: []v1alpha1.TenantSubject{{Tenant: "lunar"}}, Rules: rules}}
	return p.checkTenantAccess(ctx, admission.NewAttributesRecord(object, nil, v1alpha1.GroupVersion.WithKind("TenantAccess"), "", "a",
		v1alpha1.GroupVersion.WithResource("tenantaccesses"), "", admission.Create, &metav1.CreateOptions{}, true, u))
}

func allows(verbs, resources string) []authorizer.ResourceRuleInfo {
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: strings.Fields(verbs), APIGroups: []string{""}, Resources: strings.Fields(resources)}}
}

func rule(verbs, resources string, namespaces ...string) v1alpha1.TenantAccessRule {
	return v1alpha1.TenantAccessRule{Verbs: strings.Fields(verbs), APIGroups: []string{""}, Resources: strings.Fields(resources), Namespaces: namespaces}
}

// Z5: what somebody may do is looked up once for each namespace, whatever he writes.
func TestGivingManyRightsAsksForFew(t *testing.T) {
	all := slices.Repeat([]v1alpha1.TenantAccessRule{{Verbs: words("v", 16), APIGroups: words("g", 16), Resources: words("r", 16), Namespaces: []string{"web"}}}, 32)
	l := &listing{in: map[string][]authorizer.ResourceRuleInfo{"web": {&authorizer.DefaultResourceRuleInfo{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}}
	alice := &user.DefaultInfo{Name: "alice"}
	if err := gives(t.Context(), t, l, alice, all...); err != nil || l.asked > 0 || l.read != 1 {
		t.Errorf("with all rights, %d were asked for, and the rules %d times: %v", l.asked, l.read, err)
	}
	none := &listing{}
	if err := gives(t.Context(), t, none, alice, all...); err == nil || none.asked > maxAsked {
		t.Errorf("without rights, %d were asked for: %v", none.asked, err)
	}
	webhook := &listing{byWebhook: "v0"}
	if err := gives(t.Context(), t, webhook, alice, v1alpha1.TenantAccessRule{Verbs: []string{"v0"}, APIGroups: []string{""}, Resources: words("r", 32), Namespaces: []string{"a", "b"}}); err == nil || webhook.asked > maxAsked {
		t.Errorf("by the webhook, %d were asked for: %v", webhook.asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gives(ctx, t, l, alice, all...); !errors.Is(err, context.Canceled) {
		t.Errorf("whose request has ended: %v", err)
	}
}

// Z5: nobody gives what he doesn't have.
func TestWhoGivesRightsHasThem(t *testing.T) {
	in := func(namespaces ...string) map[string][]authorizer.ResourceRuleInfo {
		all := map[string][]authorizer.ResourceRuleInfo{}
		for _, n := range namespaces {
			all[n] = allows("get list", "pods pods/log")
		}
		return all
	}
	alice, owner := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "owner", Groups: []string{user.AllAuthenticated}}
	for what, c := range map[string]struct {
		has  *listing
		u    user.Info
		rule v1alpha1.TenantAccessRule
		want bool
	}{
		"what she has":                     {&listing{in: in("web")}, alice, rule("get", "pods pods/log", "web"), true},
		"another namespace":                {&listing{in: in("web")}, alice, rule("get", "pods", "web", "db"), false},
		"all namespaces":                   {&listing{in: in("web")}, alice, rule("get", "pods"), false},
		"all namespaces that she has":      {&listing{in: in("", "*")}, alice, rule("get", "pods"), true},
		"what is in none isn't everywhere": {&listing{in: in("")}, alice, rule("get", "pods"), false},
		"another verb":                     {&listing{in: in("web")}, alice, rule("delete", "pods", "web"), false},
		"all verbs":                        {&listing{in: in("web")}, alice, rule("*", "pods", "web"), false},
		"all resources":                    {&listing{in: in("web")}, alice, rule("get", "*", "web"), false},
		"a subresource":                    {&listing{in: in("web")}, alice, rule("get", "pods/exec", "web"), false},
		"what the webhook allows":          {&listing{in: in("web"), byWebhook: "delete"}, alice, rule("get delete", "pods", "web"), true},
		"masters":                          {&listing{}, &user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}, rule("*", "*"), true},
		"an owner":                         {&listing{}, owner, rule("*", "pods secrets"), true},
		"an owner in a namespace":          {&listing{}, owner, rule("*", "*", "web"), true},
		"an owner about nodes":             {&listing{}, owner, rule("get", "nodes/proxy"), false},
		"an owner about everything":        {&listing{}, owner, rule("get", "*"), false},
	} {
		if err := gives(t.Context(), t, c.has, c.u, c.rule); (err == nil) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
}
