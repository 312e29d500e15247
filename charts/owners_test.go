// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/vcluster/pki"
)

// X2, O1: Berth publishes the kubeconfigs of owners with the rights of the chart, and may write no other Secrets for it.
func TestBerthsAccountWritesSecretsOfOwnersAlone(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	config := rest.CopyConfig(r.config)
	config.Impersonate.UserName = "system:serviceaccount:platform:berth"
	dir := t.TempDir()
	owners, err := kubeconfig.OpenOwners(config, "platform", "berth", dir, clocktesting.NewFakePassiveClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for _, space := range []string{"a", "mine", "with--dashes", strings.Repeat("x", 57)} {
		if _, err := pki.OpenCA(kubeconfig.ClientKeys(dir, space), pki.SpaceCA(space)); err != nil {
			t.Fatal(err)
		}
		state := &access.State{Space: space, Access: v1alpha1.Access{Owners: []v1alpha1.Owner{
			{Kind: v1alpha1.UserKind, Name: "Alice@Example.com"}, {Kind: v1alpha1.GroupKind, Name: "Ä"}, {Kind: v1alpha1.UserKind, Name: strings.Repeat("y", 253)},
		}}}
		for _, state := range []*access.State{state, {Space: space}} {
			if _, err := owners.Publish(ctx, space, state, "https://a", nil); err != nil {
				t.Errorf("space %s: %v", space, err)
			}
			list := &corev1.SecretList{}
			if err := r.admin.List(ctx, list, client.InNamespace("platform"), client.MatchingLabels{"berth.dev/kubeconfig": space}); err != nil || len(list.Items) != len(state.Access.Owners) {
				t.Errorf("space %s with the owners %v has %d Secrets (%v)", space, state.Access.Owners, len(list.Items), err)
			}
		}
	}

	const name = "mine-owner-alice---abcdefghijklmnopqrstuvwxyz"
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := kubeconfigSecret(name, "mine", "berth", kubeconfigType)
		s.Labels["berth.dev/owner-kind"], s.Annotations = "User", map[string]string{"berth.dev/owner": "alice"}
		change(s)
		return s
	}
	for what, s := range map[string]*corev1.Secret{
		"another type": secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }),
		"a token": secret(func(s *corev1.Secret) {
			s.Type, s.Annotations[corev1.ServiceAccountNameKey] = corev1.SecretTypeServiceAccountToken, "default"
		}),
		"another space":      secret(func(s *corev1.Secret) { s.Labels["berth.dev/kubeconfig"] = "other" }),
		"no space":           secret(func(s *corev1.Secret) { delete(s.Labels, "berth.dev/kubeconfig") }),
		"another platform":   secret(func(s *corev1.Secret) { s.Labels["berth.dev/platform"] = "other" }),
		"no kind":            secret(func(s *corev1.Secret) { delete(s.Labels, "berth.dev/owner-kind") }),
		"another kind":       secret(func(s *corev1.Secret) { s.Labels["berth.dev/owner-kind"] = "ServiceAccount" }),
		"no owner":           secret(func(s *corev1.Secret) { s.Annotations = nil }),
		"no hash":            secret(func(s *corev1.Secret) { s.Name = "mine-owner-alice" }),
		"a short hash":       secret(func(s *corev1.Secret) { s.Name = "mine-owner-alice---abc" }),
		"a name of somebody": secret(func(s *corev1.Secret) { s.Name = "mine-registry---abcdefghijklmnopqrstuvwxyz" }),
		"Argo CD's":          secret(func(s *corev1.Secret) { s.Namespace = "argocd" }),
	} {
		if err := apply(ctx, r.berth, s.DeepCopy()); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
		if what == "a token" {
			continue // the host would delete it at once
		}
		if err := r.admin.Create(ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := r.berth.Delete(ctx, s); !apierrors.IsForbidden(err) {
			t.Errorf("%s, deleted: %v, want it forbidden", what, err)
		}
		if err := r.admin.Delete(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	mine := secret(func(*corev1.Secret) {})
	if err := apply(ctx, r.berth, mine.DeepCopy()); err != nil {
		t.Errorf("its own: %v", err)
	}
	if err := apply(ctx, r.other, mine.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("another platform writes it: %v", err)
	}
	if err := r.berth.Delete(ctx, mine); err != nil {
		t.Errorf("its own, deleted: %v", err)
	}
}
