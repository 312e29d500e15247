// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// M4: neither a key by which other software of the host acts nor a value that says nothing can be listed by mistake, on a Tenant or on a
// Space.
func TestWorkloadIdentitiesAreValidated(t *testing.T) {
	c := hostClient(t)
	const role, azure = "eks.amazonaws.com/role-arn", "azure.workload.identity/client-id"
	of := func(annotation string, values ...string) v1alpha1.WorkloadIdentity {
		return v1alpha1.WorkloadIdentity{Annotation: annotation, Values: values}
	}
	labels := func(annotation string, labels map[string]v1alpha1.LabelValue) v1alpha1.WorkloadIdentity {
		return v1alpha1.WorkloadIdentity{Annotation: annotation, Values: []string{"x1"}, PodLabels: labels}
	}
	for name, tc := range map[string]struct {
		identity v1alpha1.WorkloadIdentity
		says     string // empty for one that is valid
	}{
		"a role":                        {identity: of(role, "arn:aws:iam::111122223333:role/solar")},
		"roles by prefix":               {identity: of(role, "arn:aws-us-gov:iam::111122223333:role/team/solar-*")},
		"a client":                      {identity: of(azure, "11111111-2222-3333-4444-555555555555")},
		"an account of Google":          {identity: of("iam.gke.io/gcp-service-account", "solar@project.iam.gserviceaccount.com")},
		"another cloud":                 {identity: of("pod-identity.alibabacloud.com/role-name", "solar-*")},
		"a label":                       {identity: labels(azure, map[string]v1alpha1.LabelValue{"azure.workload.identity/use": "true"})},
		"Berth's key":                   {of("berth.dev/space", "x1"), "spec.workloadIdentity[0].annotation"},
		"Berth's key below":             {of("label.berth.dev/x", "x1"), "Name an annotation by which a cloud"},
		"Kubernetes' key":               {of("kubernetes.io/enforce-mountable-secrets", "true"), "Name an annotation by which a cloud"},
		"Kubernetes' key below":         {of("kubectl.kubernetes.io/last-applied-configuration", "x1"), "Name an annotation by which a cloud"},
		"a key of a tool":               {of("serviceaccounts.openshift.io/oauth-redirecturi.first", "x1"), "Name an annotation by which a cloud"},
		"no domain":                     {of("role-arn", "x1"), "spec.workloadIdentity[0].annotation"},
		"no key":                        {of("eks.amazonaws.com/", "x1"), "spec.workloadIdentity[0].annotation"},
		"capitals in the domain":        {of("Kubernetes.io/x", "x1"), "spec.workloadIdentity[0].annotation"},
		"an invisible letter":           {of("eks.amazonaws.com/role\u200b-arn", "x1"), "spec.workloadIdentity[0].annotation"},
		"no values":                     {of(role), "spec.workloadIdentity[0].values"},
		"all values":                    {of("cloud.example.com/role", "*"), "spec.workloadIdentity[0].values"},
		"a star in the middle":          {of(role, "arn:aws:iam::111122223333:role/*-solar"), "spec.workloadIdentity[0].values"},
		"two stars":                     {of(role, "arn:aws:iam::111122223333:role/solar**"), "spec.workloadIdentity[0].values"},
		"a comma":                       {of("cloud.example.com/role", "a,b"), "spec.workloadIdentity[0].values"},
		"a letter like another":         {of("cloud.example.com/role", "s\u043elar"), "spec.workloadIdentity[0].values"},
		"roles of any account":          {of(role, "arn:aws:iam::*"), "must begin with the account and role/"},
		"no role":                       {of(role, "arn:aws:iam::111122223333:user/solar"), "must begin with the account and role/"},
		"accounts of Google by prefix":  {of("iam.gke.io/gcp-service-account", "solar-*"), "list whole values"},
		"clients by prefix":             {of(azure, "1111*"), "list whole values"},
		"a label of another domain":     {labels(azure, map[string]v1alpha1.LabelValue{"sidecar.istio.io/inject": "true"}), "must have the prefix of the annotation"},
		"a label of a domain like that": {labels(azure, map[string]v1alpha1.LabelValue{"azure.workload.identity.example.com/use": "true"}), "must have the prefix of the annotation"},
		"a label without a domain":      {labels(azure, map[string]v1alpha1.LabelValue{"use": "true"}), "must have the prefix of the annotation"},
		"a label's value":               {labels(azure, map[string]v1alpha1.LabelValue{"azure.workload.identity/use": "a,b"}), "spec.workloadIdentity[0].podLabels"},
	} {
		t.Run(name, func(t *testing.T) {
			identities := []v1alpha1.WorkloadIdentity{tc.identity}
			for _, object := range []client.Object{
				&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "valid"}, Spec: v1alpha1.TenantSpec{WorkloadIdentity: identities}},
				&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "valid"}, Spec: v1alpha1.SpaceSpec{WorkloadIdentity: identities}},
			} {
				err := c.Create(t.Context(), object, client.DryRunAll)
				if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
					t.Errorf("a %T: %v, want %q", object, err, tc.says)
				}
			}
		})
	}
	twice := []v1alpha1.WorkloadIdentity{of(role, "arn:aws:iam::1:role/a"), of(role, "arn:aws:iam::1:role/b")}
	if err := c.Create(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "valid"}, Spec: v1alpha1.TenantSpec{WorkloadIdentity: twice}}, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "Duplicate") {
		t.Errorf("an annotation twice: %v", err)
	}
}
