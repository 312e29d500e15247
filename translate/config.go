// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// ConfigMap returns v's host object.
func (s Space) ConfigMap(v *corev1.ConfigMap) *corev1.ConfigMap {
	c := v.DeepCopy()
	return &corev1.ConfigMap{ObjectMeta: s.ObjectMeta(v, LimitSubdomain), Data: c.Data, BinaryData: c.BinaryData, Immutable: c.Immutable}
}

// PushConfigMap copies the tenant's fields of a config map to have. It reports whether anything differed.
func PushConfigMap(want, have *corev1.ConfigMap) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Data, have.Data) || !equality.Semantic.DeepEqual(want.BinaryData, have.BinaryData) ||
		!equality.Semantic.DeepEqual(want.Immutable, have.Immutable) {
		have.Data, have.BinaryData, have.Immutable, changed = want.Data, want.BinaryData, want.Immutable, true
	}
	return changed
}

// Secret returns v's host object. A service account token becomes an opaque secret, because on the host its type would
// request a token for the host's API.
func (s Space) Secret(v *corev1.Secret) *corev1.Secret {
	c := v.DeepCopy()
	host := &corev1.Secret{ObjectMeta: s.ObjectMeta(v, LimitSubdomain), Data: c.Data, Type: c.Type, Immutable: c.Immutable}
	switch v.Type {
	case corev1.SecretTypeDockercfg, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeTLS, corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth:
	default:
		host.Type = corev1.SecretTypeOpaque
	}
	return host
}

// PushSecret copies the tenant's fields of a secret to have. It reports whether anything differed. The type is
// immutable on both sides.
func PushSecret(want, have *corev1.Secret) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Data, have.Data) || !equality.Semantic.DeepEqual(want.Immutable, have.Immutable) {
		have.Data, have.Immutable, changed = want.Data, want.Immutable, true
	}
	return changed
}

// ServiceAccount returns v's host object, which has only a name, and the annotations that [Settings.WorkloadIdentity] allows. The
// tenant's others stay in the space: on many clusters, annotations request a cloud identity.
func (s Space) ServiceAccount(v *corev1.ServiceAccount) *corev1.ServiceAccount {
	host := &corev1.ServiceAccount{ObjectMeta: s.ObjectMeta(v, LimitSubdomain), AutomountServiceAccountToken: ptr.To(false)}
	if allowed := s.Settings.WorkloadIdentity.Allowed(v.Annotations); len(allowed) > 0 {
		maps.Copy(host.Annotations, allowed)
		host.Annotations[AnnotationWorkloadIdentity] = strings.Join(slices.Sorted(maps.Keys(allowed)), ",")
	}
	return host
}

// HadWorkloadIdentity reports whether Berth sets, or has set, annotations of a host service account by which a cloud gives pods an
// identity.
func HadWorkloadIdentity(host *corev1.ServiceAccount) bool {
	_, had := host.Annotations[AnnotationWorkloadIdentity]
	return had
}

// PushServiceAccount copies what Berth sets in a service account to have. What the host's admins add stays. Annotations that Berth set
// earlier are removed. Their list stays, and is empty then: the host notes the time of a change only if a field has another value.
func PushServiceAccount(want, have *corev1.ServiceAccount) bool {
	changed := false
	if list, had := have.Annotations[AnnotationWorkloadIdentity]; had {
		want = want.DeepCopy()
		if !HadWorkloadIdentity(want) {
			want.Annotations[AnnotationWorkloadIdentity] = ""
		}
		for key := range strings.SplitSeq(list, ",") {
			_, wanted := want.Annotations[key]
			if _, there := have.Annotations[key]; there && !wanted {
				delete(have.Annotations, key)
				changed = true
			}
		}
	}
	changed = PushMeta(want, have) || changed
	if !equality.Semantic.DeepEqual(want.AutomountServiceAccountToken, have.AutomountServiceAccountToken) {
		have.AutomountServiceAccountToken, changed = want.AutomountServiceAccountToken, true
	}
	return changed
}
