// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// limitIs waits until the ledger of a tenant has these limits, given as pairs of names and amounts.
func (e *env) limitIs(name string, pairs ...string) *v1alpha1.QuotaLedger {
	e.Helper()
	ledger := &v1alpha1.QuotaLedger{}
	e.eventually(fmt.Sprintf("the limit of tenant %s is %v", name, pairs), func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKey{Name: name}, ledger); err != nil {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			if limit := ledger.Spec.Limit[corev1.ResourceName(pairs[i])]; limit.Cmp(resource.MustParse(pairs[i+1])) != 0 {
				return fmt.Errorf("it is %s of %s", limit.String(), pairs[i])
			}
		}
		return nil
	})
	return ledger
}

func limitedTo(name, amount string) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) {
		if s.Quota == nil {
			s.Quota = map[corev1.ResourceName]resource.Quantity{}
		}
		s.Quota[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
}

// Q1, Q5: every tenant has a quota, and that of a child is never more than its parent's, whatever its spec says.
func TestAChildsQuotaIsWithinItsParents(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("a", limitedTo("requests.cpu", "8")), tenant("b", below("a"), limitedTo("requests.cpu", "6")), tenant("c", below("b")), tenant("d", below("a"), limitedTo("requests.cpu", "9")))
	if ledger := e.limitIs("a", "requests.cpu", "8", "pods", "200"); ledger.Spec.Parent != "" {
		t.Errorf("the parent of a root is %q", ledger.Spec.Parent)
	}
	e.limitIs("b", "requests.cpu", "6", "pods", "200")
	if ledger := e.limitIs("c", "requests.cpu", "6"); ledger.Spec.Parent != "b" {
		t.Errorf("the parent of c is %q", ledger.Spec.Parent)
	}
	e.limitIs("d", "requests.cpu", "8")
	refused := e.reason("d", v1alpha1.ReasonInvalidQuota)
	if message := refused.Status.Conditions[0].Message; !strings.Contains(message, "spec.quota[requests.cpu]: 9 is more than the 8 of the tenant a above") || !strings.Contains(message, "lower it, or raise") {
		t.Errorf("the message is %q", message)
	}
	change(e, tenant("a"), func(one *v1alpha1.Tenant) { limitedTo("requests.cpu", "4")(&one.Spec) })
	for _, name := range []string{"a", "b", "c", "d"} {
		e.limitIs(name, "requests.cpu", "4")
	}
	change(e, tenant("a"), func(one *v1alpha1.Tenant) { limitedTo("requests.cpu", "20")(&one.Spec) })
	e.limitIs("b", "requests.cpu", "6")
	e.limitIs("c", "requests.cpu", "6")
	e.limitIs("d", "requests.cpu", "9")
	e.tenantIs("d", "is valid again", func(one *v1alpha1.Tenant) bool { return one.Status.Conditions[0].Reason != v1alpha1.ReasonInvalidQuota })
}

// Q5, T6: a tenant that is gone leaves no ledger, and no share in that of its parent.
func TestADeletedTenantFreesItsShare(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("a"), tenant("b", below("a")))
	e.limitIs("b", "pods", "200")
	e.eventually("b has a share", func(ctx context.Context) error {
		ledger := &v1alpha1.QuotaLedger{}
		if err := e.Get(ctx, client.ObjectKey{Name: "a"}, ledger); err != nil {
			return err
		}
		ledger.Status.Shares = []v1alpha1.QuotaShare{{Kind: v1alpha1.TenantHolder, Name: "b", Reserved: map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("3")}}, {Kind: v1alpha1.SpaceHolder, Name: "b"}}
		return e.Status().Update(ctx, ledger)
	})
	if err := e.Delete(t.Context(), tenant("b")); err != nil {
		t.Fatal(err)
	}
	e.eventually("b is gone", func(ctx context.Context) error {
		ledger := &v1alpha1.QuotaLedger{}
		if err := e.Get(ctx, client.ObjectKey{Name: "b"}, ledger); !apierrors.IsNotFound(err) {
			gone := &v1alpha1.Tenant{}
			return fmt.Errorf("its ledger is there: %w; the tenant: %w, %+v", err, e.Get(ctx, client.ObjectKey{Name: "b"}, gone), gone.Status.Conditions)
		}
		if err := e.Get(ctx, client.ObjectKey{Name: "a"}, ledger); err != nil {
			return err
		}
		if slices.ContainsFunc(ledger.Status.Shares, func(s v1alpha1.QuotaShare) bool { return s.Kind == v1alpha1.TenantHolder }) || len(ledger.Status.Shares) != 1 {
			return fmt.Errorf("the shares are %v", ledger.Status.Shares)
		}
		return nil
	})
}
