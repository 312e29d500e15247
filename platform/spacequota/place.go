// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/quota"
)

// least is what each space needs for the objects that isolate it and make its API and its DNS known.
func least() quota.Amounts {
	return quota.Amounts{
		corev1.ResourceServices:                   resource.MustParse("2"),
		corev1.ResourceConfigMaps:                 resource.MustParse("1"),
		"count/endpointslices.discovery.k8s.io":   resource.MustParse("4"),
		"count/networkpolicies.networking.k8s.io": resource.MustParse("3"),
		"count/serviceaccounts":                   resource.MustParse("3"),
	}
}

// Place gives a space the share that it needs to begin with, and writes its quota on the host. The namespace of the space must exist.
func (q *Quotas) Place(ctx context.Context, space string) error {
	tenant, ceiling := q.Of(space)
	err := q.ledgers.Adopt(ctx, tenant, space)
	var hard quota.Amounts
	if err == nil {
		hard, err = q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, Has: least(), OnHost: true})
	}
	if more := soon(hard); err == nil && len(more) > 0 {
		if _, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, More: more, OnHost: true}); err != nil && !quota.IsExceeded(err) {
			return fmt.Errorf("give space %s its share of the quota of tenant %s: %w", space, tenant, err)
		}
	}
	switch {
	case quota.IsExceeded(err) && hasLeast(hard): // it uses too much of something, which is not taken away
		return nil
	case errors.Is(err, quota.ErrNotFound):
		return fmt.Errorf("the quota of tenant %s isn't known yet: the operator writes it once the tenant exists; look at kubectl get tenant %s: %w", tenant, tenant, err)
	case err != nil:
		return fmt.Errorf("give space %s its share of the quota of tenant %s: %w", space, tenant, err)
	}
	return nil
}

// soon is what a space without any of these needs sooner or later: for what the syncer makes of pods and other objects, it would ask only once
// the host has rejected it.
func soon(hard quota.Amounts) quota.Amounts {
	more := quota.Amounts{}
	for _, name := range []corev1.ResourceName{corev1.ResourceSecrets, "count/ingresses.networking.k8s.io", "count/poddisruptionbudgets.policy"} {
		if has, limited := hard[name]; limited && has.IsZero() {
			more[name] = resource.MustParse("1")
		}
	}
	return more
}

// hasLeast reports whether a space has what it needs to begin with.
func hasLeast(hard quota.Amounts) bool {
	for name, amount := range least() {
		if has, limited := hard[name]; limited && has.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}
