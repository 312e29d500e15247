// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Q5, T6: what is left in ledgers of a space and a tenant that were removed by force is freed, and what somebody may still use is not.
func TestSharesOfHoldersThatAreGoneAreFreed(t *testing.T) {
	e := newEnv(t)
	stop := e.run()
	e.create(tenant("a"), tenant("b", below("a")))
	e.limitIs("b", "pods", "200")
	e.eventually("a has its space", func(ctx context.Context) error { return e.Get(ctx, client.ObjectKey{Name: "a"}, &v1alpha1.Space{}) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth-removed"}}
	pods := map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("3")}
	ledgers := []*v1alpha1.QuotaLedger{
		{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: v1alpha1.QuotaLedgerSpec{Parent: "a", Limit: pods}},
		{ObjectMeta: metav1.ObjectMeta{Name: "named"}, Spec: v1alpha1.QuotaLedgerSpec{Limit: pods}},
	}
	e.create(namespace, ledgers[0], ledgers[1], &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: v1alpha1.SpaceSpec{PlatformName: "elsewhere", TenantName: "named"}})
	share := func(kind v1alpha1.QuotaHolderKind, name string) v1alpha1.QuotaShare {
		return v1alpha1.QuotaShare{Kind: kind, Name: name, Reserved: pods}
	}
	above := e.limitIs("a")
	above.Status.Shares = []v1alpha1.QuotaShare{
		share(v1alpha1.SpaceHolder, "a"), share(v1alpha1.SpaceHolder, "gone"), share(v1alpha1.SpaceHolder, "removed"),
		share(v1alpha1.TenantHolder, "b"), share(v1alpha1.TenantHolder, "gone"), share(v1alpha1.TenantHolder, "never"),
	}
	if err := e.Status().Update(t.Context(), above); err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		e.eventually(fmt.Sprintf("a has the shares %v", want), func(ctx context.Context) error {
			if err := e.Get(ctx, client.ObjectKey{Name: "a"}, above); err != nil {
				return err
			}
			var have []string
			for _, s := range above.Status.Shares {
				have = append(have, string(s.Kind)+"/"+s.Name)
			}
			if !slices.Equal(have, want) {
				return fmt.Errorf("it has %v", have)
			}
			return nil
		})
	}
	stop = e.run()
	// The namespace of a space that was removed by force may have pods. The ledger of a tenant goes before its share.
	left("Space/a", "Space/removed", "Tenant/b", "Tenant/gone")
	e.eventually("the ledger of a tenant that is gone is deleted", func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKey{Name: "gone"}, ledgers[0]); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if err := errors.Join(stop(), e.Delete(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	e.eventually("the namespace is gone", func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	e.run()
	left("Space/a", "Tenant/b")
	if err := e.Get(t.Context(), client.ObjectKey{Name: "named"}, ledgers[1]); err != nil { // a space has that tenant
		t.Error(err)
	}
}

// Q5: under a tenant that refuses overcommitment, the quotas of the tenants directly below are no more than its own together, whatever
// changes.
func TestATenantMayRefuseOvercommitment(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("a", limitedTo("requests.cpu", "8"), func(s *v1alpha1.TenantSpec) { s.QuotaOvercommit = v1alpha1.OvercommitRefused }))
	e.limitIs("a", "requests.cpu", "8")
	for _, one := range []*v1alpha1.Tenant{
		tenant("d", below("a")), tenant("c", below("a"), limitedTo("requests.cpu", "6")), tenant("b", below("a"), limitedTo("requests.cpu", "3")), tenant("e", below("a")),
	} {
		e.create(one)
		e.limitIs(one.Name)
		e.eventually("the next one is younger, in seconds", func(context.Context) error {
			if time.Now().Truncate(time.Second).After(one.CreationTimestamp.Time) {
				return nil
			}
			return errors.New("it isn't yet")
		})
	}
	e.limitIs("c", "requests.cpu", "6")
	e.limitIs("b", "requests.cpu", "2")
	e.limitIs("d", "requests.cpu", "0")
	e.limitIs("e", "requests.cpu", "0")
	refused := e.reason("b", v1alpha1.ReasonInvalidQuota)
	if message := refused.Status.Conditions[0].Message; !strings.Contains(message, "spec.quota[requests.cpu]: 3 is more than the 2 that older tenants leave of the 8 of the tenant a above, which refuses overcommitment; lower it") {
		t.Errorf("the message is %q", message)
	}
	change(e, tenant("c"), func(one *v1alpha1.Tenant) { limitedTo("requests.cpu", "4")(&one.Spec) })
	e.limitIs("b", "requests.cpu", "3")
	e.limitIs("d", "requests.cpu", "1")
	e.limitIs("e", "requests.cpu", "0")
	e.tenantIs("b", "is valid again", func(one *v1alpha1.Tenant) bool { return one.Status.Conditions[0].Reason != v1alpha1.ReasonInvalidQuota })
	if err := e.Delete(t.Context(), tenant("c")); err != nil {
		t.Fatal(err)
	}
	e.limitIs("d", "requests.cpu", "5")
	change(e, tenant("a"), func(one *v1alpha1.Tenant) { one.Spec.QuotaOvercommit = v1alpha1.OvercommitAllowed })
	for _, name := range []string{"d", "e"} {
		e.limitIs(name, "requests.cpu", "8")
	}
}
