// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

const (
	roleKey  = "eks.amazonaws.com/role-arn"
	useLabel = "azure.workload.identity/use"
	ownLabel = "cloud.example.com/use"
)

func identified() translate.Space {
	return translate.Space{Name: "mine", Settings: translate.Settings{WorkloadIdentity: workloadidentity.Rules{
		{Annotation: roleKey, Values: []string{"role/mine-*"}},
		{Annotation: "cloud.example.com/id", Values: []string{"17"}, PodLabels: map[string]string{ownLabel: "true"}},
	}}}
}

func account(annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app", UID: "u", Annotations: annotations}}
}

// cloudOf returns the annotations of a host account that aren't Berth's.
func cloudOf(host *corev1.ServiceAccount) map[string]string {
	others := map[string]string{}
	for key, value := range host.Annotations {
		if !translate.Owned(key) {
			others[key] = value
		}
	}
	return others
}

// M4, S1: host accounts follow what the admin allows of their accounts. What an admin of the host wrote stays.
func TestAHostAccountHasTheAnnotationsThatAreAllowedNow(t *testing.T) {
	none, one, other := map[string]string{}, map[string]string{roleKey: "role/mine-a"}, map[string]string{roleKey: "role/mine-b"}
	byHand := map[string]string{"iam.gke.io/gcp-service-account": "by-hand"}
	both := map[string]string{roleKey: "role/mine-a", "iam.gke.io/gcp-service-account": "by-hand"}
	for name, tc := range map[string]struct {
		was, is, added, want map[string]string
		without              bool // the setting, by now
	}{
		"none":                               {none, none, none, none, false},
		"one":                                {none, one, none, one, false},
		"another":                            {one, other, none, other, false},
		"removed":                            {one, none, none, none, false},
		"no longer allowed":                  {one, map[string]string{roleKey: "role/yours"}, none, none, false},
		"the setting is removed":             {one, one, none, none, true},
		"an admin's, beside it":              {one, one, byHand, both, false},
		"an admin's, when ours is removed":   {one, none, byHand, byHand, false},
		"an admin's, when the setting is":    {one, one, byHand, byHand, true},
		"one that is not listed":             {none, map[string]string{"iam.gke.io/gcp-service-account": "x"}, none, none, false},
		"an admin's of a key that is listed": {none, none, one, one, false},
		"Berth's keys":                       {none, map[string]string{"berth.dev/uid": "forged", "berth.dev/workload-identity": "x"}, none, none, false},
	} {
		t.Run(name, func(t *testing.T) {
			have := identified().ServiceAccount(account(tc.was))
			for key, value := range tc.added {
				have.Annotations[key] = value
			}
			space := identified()
			if tc.without {
				space.Settings.WorkloadIdentity = nil
			}
			want := space.ServiceAccount(account(tc.is))
			translate.PushServiceAccount(want, have)
			if diff := cmp.Diff(tc.want, cloudOf(have)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if have.Annotations[translate.AnnotationUID] != "u" {
				t.Errorf("the host account is %v", have.Annotations)
			}
			if translate.PushServiceAccount(want, have) {
				t.Error("a second push differs")
			}
			if had := len(tc.was) > 0 && tc.was[roleKey] != ""; had && !translate.HadWorkloadIdentity(have) {
				t.Error("the host account doesn't tell that it had an identity")
			}
		})
	}
}

// A label by which a webhook acts is under another key on the host, whatever its domain is, unless the pod's account has the annotation.
func TestLabelsOfWorkloadIdentitiesAreReserved(t *testing.T) {
	for _, key := range []string{ownLabel, useLabel} {
		meta := metav1.ObjectMeta{Labels: map[string]string{}}
		identified().AddLabels(&meta, map[string]string{key: "true"})
		if _, plain := meta.Labels[key]; plain || len(meta.Labels) != 1 {
			t.Errorf("%s is %v on the host", key, meta.Labels)
		}
	}
}
