// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testfields"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// M4 (finding S14): a host refuses an object that has a field, or a value of it,
// which Berth never writes, of each resource that is synced. A field that Kubernetes
// adds is sent by this test, too.
func TestHostileFieldsAreRefusedByTheHost(t *testing.T) {
	g, ctx := startPolicedHost(t), t.Context()
	own, err := resources.Parse([]string{
		"ownpriorityclasses=100", "ownstorageclasses=offered.example", "ownpersistentvolumes=offered.example={space}/", "poddisruptionbudgets=on", "serviceaccounts=on", "volumesnapshots=on", "resourceclaims=on",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.InstallPolicies(ctx, g.admin, own); err != nil {
		t.Fatal(err)
	}
	space, quota := mine, maps.Clone(v1alpha1.DefaultQuota())
	quota[translate.ClassQuotaName("offered.example")] = resource.MustParse("1")
	space.Settings.Counted = translate.CountedBy(quota)
	if err := isolation.Apply(ctx, g.admin, space, quota, isolation.Syncing(own)); err != nil {
		t.Fatal(err)
	}
	byPolicies, otherwise := 0, 0
	for _, r := range testfields.Resources() {
		// Their definitions are not on this host. The policies alone are asked about them
		// by TestHostileFieldsAreRefusedByThePolicies of package hostpolicy.
		if r.Group == "gateway.networking.k8s.io" || r.Group == "snapshot.storage.k8s.io" {
			continue
		}
		t.Run(r.Resource, func(t *testing.T) {
			allowed := func(ctx context.Context) (bool, error) {
				err := g.account.Create(ctx, r.Made(), client.DryRunAll)
				if r.InCluster && apierrors.IsForbidden(err) {
					return false, nil // the host takes the policies and rights up a moment later
				}
				return err == nil, err
			}
			if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, allowed); err != nil {
				t.Fatalf("what Berth makes is refused: %v", err)
			}
			enforced := func(ctx context.Context) (bool, error) {
				others := r.Made()
				others.SetLabels(nil)
				err := g.account.Create(ctx, others, client.DryRunAll)
				return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), nil
			}
			if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, enforced); err != nil {
				t.Fatal("the host has no policy in effect that refuses an object of others")
			}
			for _, s := range r.Sites {
				sent := r.Made()
				s.Set(sent)
				answer := sent.DeepCopyObject().(client.Object)
				switch err := g.account.Create(ctx, answer, client.DryRunAll); {
				case err == nil && s.IsSet(sent, answer):
					t.Errorf("%s: the host takes what Berth never writes", s)
				case err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
					byPolicies++
				default: // it is not valid, or not allowed for another reason, or left out by the host
					otherwise++
				}
			}
		})
	}
	t.Logf("%d fields were refused by the policies, %d otherwise", byPolicies, otherwise)
	if byPolicies < 100 {
		t.Errorf("policies refused only %d fields", byPolicies)
	}
	t.Run("pods/ephemeralcontainers", func(t *testing.T) {
		for _, s := range testfields.Ephemeral() {
			sent := g.pod.DeepCopy()
			sent.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "i"}}}
			s.Set(sent)
			answer := sent.DeepCopy()
			if err := g.account.SubResource("ephemeralcontainers").Update(ctx, answer, client.DryRunAll); err == nil && s.IsSet(sent, answer) {
				t.Errorf("%s: the host takes what Berth never writes", s)
			}
		}
	})
}
