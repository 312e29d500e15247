// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

const (
	roleKey  = "eks.amazonaws.com/role-arn"
	ownRoles = "arn:aws:iam::111122223333:role/mine-"
	useLabel = "azure.workload.identity/use"
)

func identities() workloadidentity.Rules {
	return workloadidentity.Rules{
		{Annotation: roleKey, Values: []string{ownRoles + "*", "arn:aws:iam::111122223333:role/shared"}},
		{Annotation: "azure.workload.identity/client-id", Values: []string{"1111"}, PodLabels: map[string]string{useLabel: "true"}},
	}
}

// withIdentities evaluates a policy in a space that may have these.
func withIdentities(t *testing.T, policy hostpolicy.Policy, rules workloadidentity.Rules) *evaluator {
	t.Helper()
	annotations := map[string]string{}
	if len(rules) > 0 {
		annotations[translate.AnnotationWorkloadIdentity] = strings.Join(rules.Strings(), ",")
	}
	return newEvaluator(t, policy, annotations)
}

// M4: a stolen account of a space gives its host accounts no identity of a cloud but those of the space.
func TestHostileWorkloadIdentities(t *testing.T) {
	const refused, marker = "only metadata", translate.AnnotationWorkloadIdentity
	account := func(pairs ...string) *corev1.ServiceAccount { // the marker lists the keys, unless it is among them
		a := &corev1.ServiceAccount{AutomountServiceAccountToken: ptr.To(false), ObjectMeta: metav1.ObjectMeta{
			Name: "mine--default--app", Namespace: "berth-mine", Labels: map[string]string{translate.LabelSpace: "mine"}, Annotations: map[string]string{"berth.dev/name": "app"},
		}}
		var keys []string
		for i := 0; i < len(pairs); i += 2 {
			a.Annotations[pairs[i]], keys = pairs[i+1], append(keys, pairs[i])
		}
		if _, set := a.Annotations[marker]; !set && len(keys) > 0 {
			a.Annotations[marker] = strings.Join(keys, ",")
		}
		return a
	}
	for name, tc := range map[string]struct {
		rules    workloadidentity.Rules
		old, new *corev1.ServiceAccount
		refused  string
	}{
		"none":                                       {rules: identities(), new: account()},
		"one of the space's":                         {rules: identities(), new: account(roleKey, ownRoles+"app")},
		"one without the marker":                     {rules: identities(), new: account(roleKey, ownRoles+"app", marker, ""), refused: refused},
		"one with the marker of another":             {rules: identities(), new: account(roleKey, ownRoles+"app", marker, "azure.workload.identity/client-id"), refused: refused},
		"the marker is emptied":                      {rules: identities(), old: account(roleKey, ownRoles+"app"), new: account(roleKey, ownRoles+"app", marker, ""), refused: "must list the annotations"},
		"the marker is emptied, and the key is gone": {rules: identities(), old: account(roleKey, ownRoles+"app"), new: account(marker, "")},
		"an exact one":                               {rules: identities(), new: account(roleKey, "arn:aws:iam::111122223333:role/shared")},
		"both":                                       {rules: identities(), new: account(roleKey, ownRoles+"app", "azure.workload.identity/client-id", "1111")},
		"one of the space's, without a list":         {new: account(roleKey, ownRoles+"app"), refused: refused},
		"another tenant's":                           {rules: identities(), new: account(roleKey, "arn:aws:iam::111122223333:role/yours-app"), refused: refused},
		"longer than an exact one":                   {rules: identities(), new: account(roleKey, "arn:aws:iam::111122223333:role/shared2"), refused: refused},
		"the entry itself":                           {rules: identities(), new: account(roleKey, ownRoles+"*"), refused: refused},
		"a star":                                     {rules: identities(), new: account(roleKey, "*"), refused: refused},
		"none at all":                                {rules: identities(), new: account(roleKey, ""), refused: refused},
		"of another key":                             {rules: identities(), new: account("azure.workload.identity/client-id", ownRoles+"app"), refused: refused},
		"another key":                                {rules: identities(), new: account("iam.gke.io/gcp-service-account", ownRoles+"app"), refused: refused},
		"a key that ends like it":                    {rules: identities(), new: account("x.eks.amazonaws.com/role-arn", ownRoles+"app"), refused: refused},
		"a key that begins like it":                  {rules: identities(), new: account("eks.amazonaws.com/role", "arn=x"), refused: refused},
		"a label's entry":                            {rules: identities(), new: account(useLabel, "true"), refused: refused},
		"two lines":                                  {rules: identities(), new: account(roleKey, ownRoles+"app\nx"), refused: refused},
		"a line break at the end":                    {rules: identities(), new: account(roleKey, ownRoles+"app\n"), refused: refused},
		"a letter like another":                      {rules: identities(), new: account(roleKey, ownRoles+"\u0430pp"), refused: refused},
		"an invisible letter":                        {rules: identities(), new: account(roleKey, ownRoles+"\u200b"), refused: refused},
		"too long":                                   {rules: identities(), new: account(roleKey, ownRoles+strings.Repeat("x", 1000)), refused: refused},
		"a way up":                                   {rules: identities(), new: account(roleKey, ownRoles+"x/../yours-app"), refused: refused},
		"dots":                                       {rules: identities(), new: account(roleKey, ownRoles+"app.v1.2")},
		"a comma":                                    {rules: identities(), new: account(roleKey, ownRoles+"app,x"), refused: refused},
		"changed to another tenant's":                {rules: identities(), old: account(roleKey, ownRoles+"app"), new: account(roleKey, "arn:aws:iam::111122223333:role/yours"), refused: refused},
		"changed to another of its own":              {rules: identities(), old: account(roleKey, ownRoles+"app"), new: account(roleKey, ownRoles+"db")},
		"kept, as an admin wrote it":                 {rules: identities(), old: account(roleKey, "by-hand", marker, ""), new: account(roleKey, "by-hand", "berth.dev/uid", "u", marker, "")},
		"changed, when the list is gone":             {old: account(roleKey, ownRoles+"app"), new: account(roleKey, ownRoles+"db"), refused: refused},
		"removed, when the list is gone":             {old: account(roleKey, ownRoles+"app"), new: account()},
		"put back, when the list is gone":            {old: account(), new: account(roleKey, ownRoles+"app"), refused: refused},
		"created again, without the list":            {new: account(roleKey, "by-hand"), refused: refused},
	} {
		t.Run(name, func(t *testing.T) {
			w := of("", "serviceaccounts", "ServiceAccount", tc.new)
			if tc.old != nil {
				w.old = tc.old
			}
			message, _ := withIdentities(t, hostpolicy.Accounts(), tc.rules).refuses(w)
			if (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%q, want %q", message, tc.refused)
			}
		})
	}
	t.Run("on another resource", func(t *testing.T) {
		secret := &corev1.Secret{Type: corev1.SecretTypeOpaque, ObjectMeta: account(roleKey, ownRoles+"app").ObjectMeta}
		if message, _ := withIdentities(t, hostpolicy.Accounts(), identities()).refuses(of("", "secrets", "Secret", secret)); !strings.Contains(message, refused) {
			t.Errorf("%q", message)
		}
	})
}

// M4: of the labels by which the host's software acts on pods, a stolen account writes those of the list only, with their values.
func TestHostilePodLabelsOfWorkloadIdentities(t *testing.T) {
	for name, tc := range map[string]struct {
		rules      workloadidentity.Rules
		key, value string
		refused    bool
	}{
		"the label":             {identities(), useLabel, "true", false},
		"without a list":        {nil, useLabel, "true", true},
		"another value":         {identities(), useLabel, "false", true},
		"another of the domain": {identities(), "azure.workload.identity/inject-proxy-sidecar", "true", true},
		"another domain's":      {identities(), "sidecar.istio.io/inject", "true", true},
		"an annotation's entry": {identities(), "azure.workload.identity/client-id", "1111", true},
		"a plain one":           {nil, "app", "web", false},
	} {
		p := podOf(1, 0, 0)
		p.Labels[tc.key] = tc.value
		if message, _ := withIdentities(t, hostpolicy.Pods(), tc.rules).refuses(of("", "pods", "Pod", p)); (message != "") != tc.refused {
			t.Errorf("%s: %q, want it refused: %v", name, message, tc.refused)
		}
	}
}

// S1: what a cloud's webhook adds to a pod is allowed, as the cloud adds it.
func TestWhatWebhooksOfCloudsAddIsAllowed(t *testing.T) {
	for name, mutate := range map[string]func(*corev1.Pod){
		"AWS": func(p *corev1.Pod) {
			identify(p, "aws-iam-token", "/var/run/secrets/eks.amazonaws.com/serviceaccount", "sts.amazonaws.com", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_STS_REGIONAL_ENDPOINTS")
		},
		"Azure": func(p *corev1.Pod) {
			identify(p, "azure-identity-token", "/var/run/secrets/azure/tokens", "api://AzureADTokenExchange", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST")
		},
	} {
		p := podOf(2, 3, 0)
		p.Spec.ServiceAccountName, p.Labels[useLabel] = "mine--default--app", "true"
		mutate(p)
		if message, _ := withIdentities(t, hostpolicy.Pods(), identities()).refuses(of("", "pods", "Pod", p)); message != "" {
			t.Errorf("%s: %s", name, message)
		}
		p.Spec.ServiceAccountName = "default"
		if message, _ := withIdentities(t, hostpolicy.Pods(), identities()).refuses(of("", "pods", "Pod", p)); message == "" {
			t.Errorf("%s: a pod without an account of its own has a token", name)
		}
	}
}

func identify(p *corev1.Pod, name, path, audience string, variables ...string) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(int32(0o420)),
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: audience, Path: "token", ExpirationSeconds: ptr.To(int64(86400)),
		}}},
	}}})
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
		for _, variable := range variables {
			c.Env = append(c.Env, corev1.EnvVar{Name: variable, Value: "x"})
		}
	}
}

// L3: the longest list costs a host little, and an account with more annotations than the list has entries is refused, not let in.
func TestTheLongestListOfIdentitiesIsWithinTheHostsBudget(t *testing.T) {
	var rules workloadidentity.Rules
	var keys []string
	for i := range 16 { // those of the configuration, and those of the space
		rule := workloadidentity.Rule{Annotation: fmt.Sprintf("cloud-%d.example.com/%s", i, strings.Repeat("k", 63)), PodLabels: map[string]string{fmt.Sprintf("cloud-%d.example.com/l", i): strings.Repeat("v", 63)}}
		for j := range 32 {
			rule.Values = append(rule.Values, fmt.Sprintf("%s%02d*", strings.Repeat("x", 253), j))
		}
		rules = append(rules, rule)
	}
	a := &corev1.ServiceAccount{AutomountServiceAccountToken: ptr.To(false), ObjectMeta: metav1.ObjectMeta{
		Name: "mine--default--app", Namespace: "berth-mine", Labels: map[string]string{translate.LabelSpace: "mine"}, Annotations: map[string]string{},
	}}
	for _, rule := range rules {
		a.Annotations[rule.Annotation] = strings.TrimSuffix(rule.Values[31], "*") + strings.Repeat("y", 745)
		keys = append(keys, rule.Annotation)
	}
	a.Annotations[translate.AnnotationWorkloadIdentity] = strings.Join(keys, ",")
	accounts, w := withIdentities(t, hostpolicy.Accounts(), rules), of("", "serviceaccounts", "ServiceAccount", a)
	w.old = a.DeepCopy()
	message, cost := accounts.refuses(w)
	if message != "" {
		t.Errorf("refused: %s", message)
	}
	t.Logf("an account costs %d of %d", cost, celconfig.RuntimeCELCostBudget)
	p := podOf(250, 10, 0)
	p.Labels["cloud-1.example.com/l"] = strings.Repeat("v", 63)
	message, cost = withIdentities(t, hostpolicy.Pods(), rules).refuses(of("", "pods", "Pod", p))
	if message != "" {
		t.Errorf("refused: %s", message)
	}
	t.Logf("a pod costs %d of %d", cost, celconfig.RuntimeCELCostBudget)
}
