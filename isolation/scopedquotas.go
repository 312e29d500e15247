// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// scopedPrefix is the prefix of the names of scoped quotas on the host.
const scopedPrefix = objectName + "-"

func scopedQuotas(space translate.Space, scoped map[string]corev1.ResourceQuotaSpec) (all []client.Object) {
	for _, name := range slices.Sorted(maps.Keys(scoped)) {
		all = append(all, &corev1.ResourceQuota{TypeMeta: kind("v1", "ResourceQuota"), ObjectMeta: meta(space, scopedPrefix+name), Spec: scoped[name]})
	}
	return all
}

// removeScopedQuotas deletes the scoped quotas of a space that are no longer wanted, and those whose scopes differ from the
// wanted ones, which are immutable. Quotas of admins stay: they don't have the labels.
func removeScopedQuotas(ctx context.Context, host client.Client, space translate.Space, wanted map[string]corev1.ResourceQuotaSpec) error {
	list := &corev1.ResourceQuotaList{}
	err := host.List(ctx, list, client.InNamespace(space.HostNamespace()), client.MatchingLabels{translate.LabelSpace: space.Name, translate.LabelManagedBy: translate.ManagedBy})
	if err != nil {
		return fmt.Errorf("list the scoped quotas of space %s: %w", space.Name, err)
	}
	for i := range list.Items {
		live := &list.Items[i]
		name, scoped := strings.CutPrefix(live.Name, scopedPrefix)
		want, wants := wanted[name]
		if !scoped || wants && sameScopes(&want, &live.Spec) {
			continue
		}
		if err := host.Delete(ctx, live, client.Preconditions{UID: &live.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s of space %s: %w", describe(live), space.Name, err)
		}
	}
	return nil
}

// sameScopes reports whether two quotas have the same scopes, in any order.
func sameScopes(a, b *corev1.ResourceQuotaSpec) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.Scopes)), slices.Sorted(slices.Values(b.Scopes)))
}
