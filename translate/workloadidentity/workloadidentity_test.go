// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadidentity_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/workloadidentity"
)

const (
	roleKey   = "eks.amazonaws.com/role-arn"
	clientKey = "azure.workload.identity/client-id"
	tenantKey = "azure.workload.identity/tenant-id"
	useLabel  = "azure.workload.identity/use"
	roles     = "arn:aws:iam::111122223333:role/solar-"
	client    = "11111111-2222-3333-4444-555555555555"
)

func solar() workloadidentity.Rules {
	return workloadidentity.Rules{
		{Annotation: roleKey, Values: []string{roles + "*", "arn:aws:iam::111122223333:role/shared"}},
		{Annotation: clientKey, Values: []string{client}, PodLabels: map[string]string{useLabel: "true"}},
		{Annotation: tenantKey, Values: []string{"of-solar", "of-solar/../of-all"}},
	}
}

// M4: a value is allowed as it is listed, or by a prefix, and by nothing that only looks like it.
func TestOnlyListedValuesAreAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		key, value string
		allowed    bool
	}{
		"exact":                       {roleKey, "arn:aws:iam::111122223333:role/shared", true},
		"exact, and more":             {roleKey, "arn:aws:iam::111122223333:role/shared2", false},
		"exact, and less":             {roleKey, "arn:aws:iam::111122223333:role/share", false},
		"by prefix":                   {roleKey, roles + "app", true},
		"the prefix itself":           {roleKey, roles, true},
		"a longer prefix":             {roleKey, "arn:aws:iam::111122223333:role/solarwind-admin", false},
		"another tenant's":            {roleKey, "arn:aws:iam::111122223333:role/lunar-app", false},
		"another account's":           {roleKey, "arn:aws:iam::999999999999:role/solar-app", false},
		"the entry, star and all":     {roleKey, roles + "*", false},
		"a star of its own":           {roleKey, "arn:aws:iam::111122223333:role/*", false},
		"long":                        {roleKey, roles + strings.Repeat("x", 1000-len(roles)), true},
		"too long":                    {roleKey, roles + strings.Repeat("x", 1001-len(roles)), false},
		"a star only":                 {roleKey, "*", false},
		"nothing":                     {roleKey, "", false},
		"in capitals":                 {roleKey, strings.ToUpper(roles) + "app", false},
		"a space in front":            {roleKey, " " + roles + "app", false},
		"a line after it":             {roleKey, roles + "app\narn:aws:iam::111122223333:role/lunar", false},
		"a line break at the end":     {roleKey, roles + "app\n", false},
		"two, by a comma":             {roleKey, roles + "app,arn:aws:iam::111122223333:role/lunar", false},
		"a way up":                    {roleKey, roles + "x/../lunar-app", false},
		"a way up at the end":         {roleKey, roles + "x/..", false},
		"a way up, exactly as listed": {tenantKey, "of-solar/../of-all", true},
		"dots":                        {roleKey, roles + "app.v1.2", true},
		"a letter like an o":          {roleKey, "arn:aws:iam::111122223333:role/s\u043elar-app", false},
		"an invisible letter":         {roleKey, roles + "\u200bapp", false},
		"a letter that turns text":    {roleKey, roles + "\u202eppa", false},
		"a composed letter":           {roleKey, roles + "a\u0301pp", false},
		"not UTF-8":                   {roleKey, roles + "\xff", false},
		"a value of another key":      {clientKey, roles + "app", false},
		"a client":                    {clientKey, client, true},
		"a key that isn't listed":     {"iam.gke.io/gcp-service-account", "anything at all", true}, // and is not copied
		"a key of the same domain":    {"eks.amazonaws.com/audience", "anything", true},
		"the key, in capitals":        {"EKS.amazonaws.com/role-arn", "anything", true},
		"the form of the policy's":    {roleKey, roleKey + "=" + roles + "app", false},
		"a label's form":              {useLabel, "true", true},
		"a letter of another width":   {roleKey, roles + "\uff21", false},
		"the empty start of a string": {roleKey, "\x00" + roles, false},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{tc.key: tc.value, "example.com/other": "x"}
			errs := solar().Check(annotations)
			if (len(errs) == 0) != tc.allowed {
				t.Errorf("%q: %v, want it allowed: %v", tc.value, errs, tc.allowed)
			}
			want := map[string]string{}
			if listed := tc.key == roleKey || tc.key == clientKey || tc.key == tenantKey; listed && tc.allowed {
				want[tc.key] = tc.value
			}
			if diff := cmp.Diff(want, solar().Allowed(annotations)); tc.allowed && diff != "" || !tc.allowed && solar().Allowed(annotations) != nil {
				t.Errorf("%q goes to the host: %s", tc.value, diff)
			}
		})
	}
}

// A part of what an account says may mean another identity than all of it.
func TestOneValueThatIsNotAllowedKeepsAllFromTheHost(t *testing.T) {
	annotations := map[string]string{clientKey: client, tenantKey: "of-lunar"}
	if allowed := solar().Allowed(annotations); len(allowed) > 0 {
		t.Errorf("%v goes to the host", allowed)
	}
	if labels := solar().PodLabels(annotations, map[string]string{useLabel: "true"}); len(labels) > 0 {
		t.Errorf("pods have %v", labels)
	}
	errs := solar().Check(annotations)
	if len(errs) != 1 {
		t.Fatal(errs)
	}
	for _, part := range []string{"metadata.annotations[" + tenantKey + "]", `"of-lunar"`, "allows of-solar, of-solar/../of-all; use one of these"} {
		if !strings.Contains(errs[0].Error(), part) {
			t.Errorf("%v lacks %q", errs[0], part)
		}
	}
}

// L3: however long a tenant's value and the admin's list are, the error fits into the message of an event, with its remedy.
func TestHostileValuesLeaveRoomForTheRemedy(t *testing.T) {
	rule := workloadidentity.Rule{Annotation: roleKey}
	for range 32 {
		rule.Values = append(rule.Values, roles+strings.Repeat("x", 256-len(roles)))
	}
	for name, value := range map[string]string{"long": strings.Repeat("x", 200<<10), "not UTF-8": strings.Repeat("\xff", 1000), "cut in a letter": strings.Repeat("\u20ac", 1000)} {
		errs := workloadidentity.Rules{rule}.Check(map[string]string{roleKey: value})
		if len(errs) != 1 {
			t.Fatalf("%s: %v", name, errs)
		}
		message := errs[0].Error()
		if len(message) > 1000 || !utf8.ValidString(message) || !strings.Contains(message, roleKey) || !strings.HasSuffix(message, "and 31 more; use one of these, remove the annotation, or ask the admin to add the value to workloadIdentity of the tenant") {
			t.Errorf("%s: %d bytes: %s", name, len(message), message)
		}
	}
}

func TestPodLabelsNeedTheAnnotation(t *testing.T) {
	for name, tc := range map[string]struct{ account, pod, want map[string]string }{
		"both":               {map[string]string{clientKey: client}, map[string]string{useLabel: "true", "app": "web"}, map[string]string{useLabel: "true"}},
		"another value":      {map[string]string{clientKey: client}, map[string]string{useLabel: "false"}, nil},
		"no label":           {map[string]string{clientKey: client}, map[string]string{"app": "web"}, nil},
		"another annotation": {map[string]string{roleKey: roles + "app"}, map[string]string{useLabel: "true"}, nil},
		"a refused client":   {map[string]string{clientKey: "other"}, map[string]string{useLabel: "true"}, nil},
		"no annotation":      {nil, map[string]string{useLabel: "true"}, nil},
	} {
		if diff := cmp.Diff(tc.want, solar().PodLabels(tc.account, tc.pod)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if labels := workloadidentity.Rules(nil).PodLabels(map[string]string{clientKey: client}, map[string]string{useLabel: "true"}); labels != nil {
		t.Errorf("without rules, pods have %v", labels)
	}
}

// By default, nothing is copied, and nothing is refused.
func TestWithoutRulesNothingGoesToTheHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		annotations := rapid.MapOf(rapid.SampledFrom([]string{roleKey, clientKey, "iam.gke.io/gcp-service-account", "a"}), rapid.String()).Draw(t, "annotations")
		var none workloadidentity.Rules
		if len(none.Check(annotations)) > 0 || len(none.Allowed(annotations)) > 0 || len(none.Strings()) > 0 {
			t.Errorf("%v goes to the host, or is refused", annotations)
		}
	})
}

// What goes to the host is listed, letter by letter: values that begin like allowed ones are drawn, with any letter in between.
func TestWhatGoesToTheHostIsListed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Just(roles), rapid.Just("arn:aws:iam::111122223333:role/shared"), rapid.Just("")).Draw(t, "begins") + rapid.String().Draw(t, "ends")
		allowed := solar().Allowed(map[string]string{roleKey: value})
		if _, goes := allowed[roleKey]; !goes {
			return
		}
		if value != "arn:aws:iam::111122223333:role/shared" && !strings.HasPrefix(value, roles) {
			t.Errorf("%q goes to the host", value)
		}
		for _, r := range value {
			if r > '~' || r <= ' ' || r == '*' || r == ',' {
				t.Errorf("%q goes to the host with %q", value, r)
			}
		}
	})
}

func TestPoliciesReadTheRules(t *testing.T) {
	want := []string{
		clientKey + "=" + client, tenantKey + "=of-solar", tenantKey + "=of-solar/../of-all", roleKey + "=arn:aws:iam::111122223333:role/shared", roleKey + "=" + roles + "*",
		"label:" + useLabel + "=true",
	}
	if diff := cmp.Diff(want, solar().Strings()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A configuration file isn't validated by the schema of Space.
func TestWrongRulesAreRejectedWithTheirField(t *testing.T) {
	one := func(annotation string, values ...string) workloadidentity.Rules {
		return workloadidentity.Rules{{Annotation: annotation, Values: values}}
	}
	labels := func(key, value string) workloadidentity.Rules {
		return workloadidentity.Rules{{Annotation: clientKey, Values: []string{client}, PodLabels: map[string]string{key: value}}}
	}
	many := make(workloadidentity.Rules, 9)
	for name, tc := range map[string]struct {
		rules workloadidentity.Rules
		want  string // empty for rules that are valid
	}{
		"valid":              {rules: solar()},
		"Berth's":            {one("berth.dev/x", "xx"), `x[0].annotation: Invalid value: "berth.dev/x": controllers of the host act on annotations of berth.dev`},
		"below Berth's":      {one("annotation.berth.dev/x", "xx"), "x[0].annotation"},
		"like Berth's":       {rules: one("notberth.dev/x", "xx")},
		"Kubernetes'":        {one("kubernetes.io/enforce-mountable-secrets", "xx"), "name an annotation by which a cloud gives an identity"},
		"kubectl's":          {one("kubectl.kubernetes.io/last-applied-configuration", "xx"), "x[0].annotation"},
		"of a project":       {one("gateway.networking.k8s.io/x", "xx"), "x[0].annotation"},
		"OpenShift's":        {one("serviceaccounts.openshift.io/oauth-redirecturi.a", "xx"), "x[0].annotation"},
		"no domain":          {one("role", "xx"), "must be a key with a domain"},
		"no key":             {one("", "xx"), "must be a key with a domain"},
		"a comma":            {one("a.example.com/x,y", "xx"), "must be a key with a domain"},
		"no values":          {one(roleKey), "x[0].values: Required value"},
		"a star":             {one("a.example.com/x", "*"), `x[0].values[0]: Invalid value: "*": must have 2 to 256 letters`},
		"a star inside":      {one("a.example.com/x", "a*b"), "x[0].values[0]"},
		"a comma in a value": {one("a.example.com/x", "a,b"), "x[0].values[0]"},
		"a line":             {one("a.example.com/x", "ab\n"), "x[0].values[0]"},
		"Unicode":            {one("a.example.com/x", "s\u043elar"), "x[0].values[0]"},
		"a long value":       {one("a.example.com/x", strings.Repeat("x", 257)), "x[0].values[0]"},
		"many values":        {one("a.example.com/x", strings.Split(strings.Repeat("xx,", 32)+"xx", ",")...), "must have at most 32 items"},
		"roles of anybody":   {one(roleKey, "arn:aws:iam::*"), "must begin with the account and role/"},
		"clients by prefix":  {one(clientKey, "1111*"), "list whole values"},
		"accounts by prefix": {one("iam.gke.io/gcp-service-account", "solar-*"), "list whole values"},
		"twice":              {append(one(roleKey, roles), one(roleKey, roles)...), "x[1].annotation: Duplicate value"},
		"many":               {many, "must have at most 8 items"},
		"a foreign label":    {labels("sidecar.istio.io/inject", "true"), "x[0].podLabels[sidecar.istio.io/inject]: Invalid value: \"sidecar.istio.io/inject\": must have the prefix"},
		"an empty label":     {labels(useLabel, ""), "x[0].podLabels[" + useLabel + "]: Required value"},
		"a label's value":    {labels(useLabel, "a,b"), "x[0].podLabels[" + useLabel + "]: Invalid value"},
		"a label's key":      {labels("azure.workload.identity/\u00fc", "a"), "x[0].podLabels[azure.workload.identity/\u00fc]: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.rules.Validate(field.NewPath("x")).ToAggregate()
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v does not say %q", err, tc.want)
			}
		})
	}
}

func TestSame(t *testing.T) {
	rules := workloadidentity.Rules{{Annotation: "cloud.example.com/id", Values: []string{"17"}}}
	id := map[string]string{"cloud.example.com/id": "17"}
	for name, tc := range map[string]struct {
		one, other map[string]string
		want       bool
	}{
		"none":                 {nil, map[string]string{}, true},
		"another annotation":   {id, map[string]string{"cloud.example.com/id": "17", "note": "x"}, true},
		"added":                {nil, id, false},
		"removed":              {id, nil, false},
		"another value":        {id, map[string]string{"cloud.example.com/id": "18"}, false},
		"added, with no value": {nil, map[string]string{"cloud.example.com/id": ""}, false},
	} {
		if got := rules.Same(tc.one, tc.other); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
