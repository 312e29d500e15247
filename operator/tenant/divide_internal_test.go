// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Q5: whatever the tenants below say, none of them has more than the quota that is divided, and they have no more together.
func TestHostileNegativeQuotasGiveOthersNoMore(t *testing.T) {
	below := func(name, pods string) v1alpha1.Tenant {
		return v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Quota: quantities{corev1.ResourcePods: resource.MustParse(pods)}}}
	}
	of := quantities{corev1.ResourcePods: resource.MustParse("8")}
	parts := divide(of, of, []v1alpha1.Tenant{below("a", "-5"), below("b", "13")}, &v1alpha1.BerthConfiguration{})
	if b := parts["b"][corev1.ResourcePods]; b.Value() > 8 {
		t.Errorf("of 8 pods, b has %s", b.String())
	}
}

// Q5: a tenant that names some resources can still have a space, although an older one beside it names the same ones only. A space needs
// 2 services and a ConfigMap at least.
func TestTenantsThatNameFewResourcesHaveASpace(t *testing.T) {
	below := func(name string) v1alpha1.Tenant {
		return v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Quota: quantities{corev1.ResourceRequestsCPU: resource.MustParse("2")}}}
	}
	of := defaultQuota(&v1alpha1.BerthConfiguration{})
	of[corev1.ResourceRequestsCPU] = resource.MustParse("8")
	parts := divide(of, quantities{corev1.ResourceRequestsCPU: resource.MustParse("8")}, []v1alpha1.Tenant{below("a"), below("b")}, &v1alpha1.BerthConfiguration{})
	for _, name := range []corev1.ResourceName{corev1.ResourceServices, corev1.ResourceConfigMaps, corev1.ResourcePods} {
		if amount := parts["b"][name]; amount.Value() < 2 {
			t.Errorf("b has %s of %s", amount.String(), name)
		}
	}
	if a, b := parts["a"][corev1.ResourceRequestsCPU], parts["b"][corev1.ResourceRequestsCPU]; a.Value() != 2 || b.Value() != 2 {
		t.Errorf("a has %s cores and b %s", a.String(), b.String())
	}
}
