// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

func TestConfigMapCarriesItsData(t *testing.T) {
	v := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cfg", UID: "m-uid", Labels: map[string]string{"grafana_dashboard": "1"}},
		Data:       map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {2}}, Immutable: ptr.To(true),
	}
	want := &corev1.ConfigMap{
		ObjectMeta: sample.Demo().ObjectMeta(v, translate.LimitSubdomain),
		Data:       map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {2}}, Immutable: ptr.To(true),
	}
	host := sample.Demo().ConfigMap(v)
	if diff := cmp.Diff(want, host); diff != "" {
		t.Errorf("host config map: -want +got:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
}

func TestPushConfigMapFollowsTheData(t *testing.T) {
	cases := map[string]struct {
		reason  string
		do      func(v *corev1.ConfigMap)
		changed bool
	}{
		"Same":      {"no write for nothing", func(*corev1.ConfigMap) {}, false},
		"Empty":     {"an API server does not tell empty from none", func(v *corev1.ConfigMap) { v.BinaryData = map[string][]byte{} }, false},
		"Changed":   {"mounted files follow", func(v *corev1.ConfigMap) { v.Data["a"] = "2" }, true},
		"Removed":   {"a key that is gone", func(v *corev1.ConfigMap) { v.Data = nil }, true},
		"Binary":    {"the other map", func(v *corev1.ConfigMap) { v.BinaryData = map[string][]byte{"b": {1}} }, true},
		"Immutable": {"spares the kubelet its watch", func(v *corev1.ConfigMap) { v.Immutable = ptr.To(true) }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cfg"}, Data: map[string]string{"a": "1"}}
			have := sample.Demo().ConfigMap(v)
			tc.do(v)
			want := sample.Demo().ConfigMap(v)
			if changed := translate.PushConfigMap(want, have); changed != tc.changed {
				t.Errorf("%s: PushConfigMap reports %v", tc.reason, changed)
			}
			if tc.changed {
				if diff := cmp.Diff(want, have); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			}
			if translate.PushConfigMap(want, have) {
				t.Errorf("%s: a second push reports a change", tc.reason)
			}
		})
	}
}

// M4: a secret's type can make a host's controllers act; only those that say no
// more than what the data is go down.
func TestSecretKeepsOnlyTypesThatDescribeData(t *testing.T) {
	cases := map[string]struct {
		reason   string
		in, want corev1.SecretType
	}{
		"Opaque":    {"the usual", corev1.SecretTypeOpaque, corev1.SecretTypeOpaque},
		"Unset":     {"defaults to the usual", "", corev1.SecretTypeOpaque},
		"PullOld":   {"a kubelet reads it by its type", corev1.SecretTypeDockercfg, corev1.SecretTypeDockercfg},
		"Pull":      {"a kubelet reads it by its type", corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockerConfigJson},
		"TLS":       {"an ingress controller reads it by its type", corev1.SecretTypeTLS, corev1.SecretTypeTLS},
		"BasicAuth": {"describes its data", corev1.SecretTypeBasicAuth, corev1.SecretTypeBasicAuth},
		"SSH":       {"describes its data", corev1.SecretTypeSSHAuth, corev1.SecretTypeSSHAuth},
		"Token":     {"the host would fill in a token of its own API", corev1.SecretTypeServiceAccountToken, corev1.SecretTypeOpaque},
		"Bootstrap": {"would let nodes join", corev1.SecretTypeBootstrapToken, corev1.SecretTypeOpaque},
		"OfOthers":  {"an operator of the host's may look for it", "helm.sh/release.v1", corev1.SecretTypeOpaque},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sec", Annotations: map[string]string{"kubernetes.io/service-account.name": "default"}},
				Type:       tc.in, Data: map[string][]byte{"k": {1}}, Immutable: ptr.To(false),
			}
			host := sample.Demo().Secret(v)
			want := &corev1.Secret{ObjectMeta: sample.Demo().ObjectMeta(v, translate.LimitSubdomain), Type: tc.want, Data: map[string][]byte{"k": {1}}, Immutable: ptr.To(false)}
			if diff := cmp.Diff(want, host); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			sample.CheckNoSharedMemory(t, v, host)
		})
	}
}

func TestPushSecretFollowsTheDataAndLeavesTheType(t *testing.T) {
	v := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sec"}, Data: map[string][]byte{"k": {1}}}
	have := sample.Demo().Secret(v)
	have.Type = corev1.SecretTypeTLS // immutable: a push of it would fail for ever
	if translate.PushSecret(sample.Demo().Secret(v), have) {
		t.Error("a push onto equal data reports a change")
	}
	v.Data["k"] = []byte{2}
	want := sample.Demo().Secret(v)
	if !translate.PushSecret(want, have) || have.Data["k"][0] != 2 || have.Type != corev1.SecretTypeTLS {
		t.Errorf("after a push: %v of type %s", have.Data, have.Type)
	}
	if translate.PushSecret(want, have) {
		t.Error("a second push reports a change")
	}
}
