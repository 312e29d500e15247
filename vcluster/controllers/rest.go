// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"

	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
)

// rootCAName names the ConfigMap of each namespace that verifies the API server.
const rootCAName = rootcacertpublisher.RootCACertConfigMapName

// These tell whether controllers that keep something in place have still to do
// it. A webhook of the tenant's may keep it from being done for a long time.

func lacksServiceAccount(ctx context.Context, s *registry.Reader) (bool, error) {
	prefix := informer.Prefix(corev1.Resource("serviceaccounts"))
	return anyNamespace(ctx, s, func(namespace string) (bool, error) {
		account, err := s.Get(ctx, prefix+namespace+"/default")
		return account == nil, err
	})
}

func lacksRootCA(ca []byte) func(context.Context, *registry.Reader) (bool, error) {
	prefix := informer.Prefix(corev1.Resource("configmaps"))
	return func(ctx context.Context, s *registry.Reader) (bool, error) {
		return anyNamespace(ctx, s, func(namespace string) (bool, error) {
			value, err := s.Get(ctx, prefix+namespace+"/"+rootCAName)
			if err != nil || value == nil {
				return true, err
			}
			var published corev1.ConfigMap
			if err := registry.Decode(value, corev1.SchemeGroupVersion, &published); err != nil {
				return true, err
			}
			return len(published.Data) != 1 || published.Data["ca.crt"] != string(ca), nil
		})
	}
}

// anyNamespace says whether f is true of a namespace that is to stay.
func anyNamespace(ctx context.Context, s *registry.Reader, f func(name string) (bool, error)) (bool, error) {
	namespaces, err := registry.List[corev1.Namespace](ctx, s, corev1.SchemeGroupVersion, "namespaces")
	if err != nil {
		return false, err
	}
	for _, n := range namespaces {
		if n.Status.Phase == corev1.NamespaceTerminating {
			continue
		}
		if found, err := f(n.Name); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// lacksAggregation says whether a cluster role's rules are not those of the roles that it aggregates. Rules that can't be aggregated
// are not: nothing changes that until a role is written.
func lacksAggregation(ctx context.Context, s *registry.Reader) (bool, error) {
	roles, err := registry.List[rbacv1.ClusterRole](ctx, s, rbacv1.SchemeGroupVersion, "clusterroles")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(roles, func(role *rbacv1.ClusterRole) bool {
		if role.AggregationRule == nil {
			return false
		}
		rules, err := aggregate(role, roles)
		return err == nil && !equality.Semantic.DeepEqual(rules, role.Rules)
	}), nil
}
