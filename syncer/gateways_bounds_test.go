// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// with is an object with a field of its spec that its type does not have.
func with(t *testing.T, o client.Object, kind, name string, value any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gatewayv1.SchemeGroupVersion.WithKind(kind))
	if err := unstructured.SetNestedField(u.Object, value, "spec", name); err != nil {
		t.Fatal(err)
	}
	return u
}

// S1, M4: a field that only the host's definition knows does not go there, and
// nothing of its object does: without it, it may mean another thing. The tenant is
// told which. What no definition knows is the API's to refuse.
func TestFieldsThatBerthDoesNotKnowAreRefusedByName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, host, space := gatewayEnv(t, "gwnew")
	Served(t, space, newGateway("good", "gwnew-imported", "good.gwnew.example"))
	newer := map[string]any{"mode": "Mutual"}
	gateway := with(t, newGateway("mutual", "gwnew-imported", "mutual.gwnew.example"), "Gateway", "tls", newer)
	route := with(t, newRoute("mutual", "good", "mutual.gwnew.example", "web"), "HTTPRoute", "tls", newer)
	atGateway := client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", "mutual", translate.LimitLabel)}
	atRoute := client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName("mutual")}
	for _, u := range []*unstructured.Unstructured{gateway, route} {
		u.SetAnnotations(map[string]string{"berth.dev/unknown-fields": ""}) // as the tenant may say what it likes
		Served(t, space, u)
		env.awaitWarning(t, u.GetKind(), "mutual", "spec.tls", "remove it")
	}
	if err := host.Get(ctx, atGateway, &gatewayv1.Gateway{}); !apierrors.IsNotFound(err) {
		t.Errorf("the gateway is on the host (%v)", err)
	}
	if err := host.Get(ctx, atRoute, &gatewayv1.HTTPRoute{}); !apierrors.IsNotFound(err) {
		t.Errorf("the route is on the host (%v)", err)
	}

	// Without them, both go there; with one again, they are taken away.
	change := func(edit func(*unstructured.Unstructured) error) {
		t.Helper()
		for _, u := range []*unstructured.Unstructured{gateway, route} {
			testhost.Eventually(t, "change "+u.GetKind(), func(ctx context.Context) error {
				if err := space.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err
				}
				if err := edit(u); err != nil {
					return err
				}
				return space.Update(ctx, u)
			})
		}
	}
	change(func(u *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(u.Object, "spec", "tls")
		return nil
	})
	g, r := &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{}
	testhost.Eventually(t, "see the gateway", func(ctx context.Context) error { return host.Get(ctx, atGateway, g) })
	testhost.Eventually(t, "see the route", func(ctx context.Context) error { return host.Get(ctx, atRoute, r) })
	change(func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, newer, "spec", "tls")
	})
	testhost.Eventually(t, "see the gateway gone", func(ctx context.Context) error { return gone(g, host.Get(ctx, atGateway, g)) })
	testhost.Eventually(t, "see the route gone", func(ctx context.Context) error { return gone(r, host.Get(ctx, atRoute, r)) })

	unknown := with(t, newGateway("unknown", "gwnew-imported", "unknown.gwnew.example"), "Gateway", "invented", true)
	if err := space.Create(ctx, unknown, client.FieldValidation(metav1.FieldValidationStrict)); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that no definition has is not refused: %v", err)
	}
	if err := space.Create(ctx, unknown); err != nil {
		t.Fatal(err)
	}
	if _, there, err := unstructured.NestedFieldNoCopy(unknown.Object, "spec", "invented"); there || err != nil {
		t.Errorf("it is kept (%v)", err)
	}
}

// M4: a space has no more gateways and routes on the host than it may, though all
// come at once; those beyond the bound get an event, and come when others are gone.
func TestASpaceHasSoManyGatewaysAndRoutes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, host, space := gatewayEnv(t, "gwmany")
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	for i := range bounds.Gateways.Max() + 1 {
		if err := space.Create(ctx, newGateway(fmt.Sprintf("g-%d", i), "gwmany-imported", fmt.Sprintf("g-%d.gwmany.example", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range bounds.Routes.Max() + 1 {
		r := newRoute(fmt.Sprintf("r-%d", i), "g-0", "routes.gwmany.example", "web")
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{Name: "g-1"})
		if err := space.Create(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	env.begin(nil) // which finds all of them at once
	theirs := client.InNamespace(env.space.HostNamespace())
	countGateways := func(ctx context.Context) (int, error) {
		all := &gatewayv1.GatewayList{}
		err := host.List(ctx, all, theirs)
		return len(all.Items), err
	}
	countRoutes := func(ctx context.Context) (int, error) {
		all := &gatewayv1.HTTPRouteList{}
		err := host.List(ctx, all, theirs)
		return len(all.Items), err
	}
	env.bounded(t, bounds.Gateways.Max(), countGateways)
	env.bounded(t, bounds.Routes.Max(), countRoutes)

	for kind, of := range map[string]struct {
		names string
		most  int
		limit int
		fresh func() client.Object
	}{
		"Gateway":   {"g", bounds.Gateways.Max(), translate.LimitLabel, func() client.Object { return &gatewayv1.Gateway{} }},
		"HTTPRoute": {"r", bounds.Routes.Max(), translate.LimitSubdomain, func() client.Object { return &gatewayv1.HTTPRoute{} }},
	} {
		onHost := func(ctx context.Context, name string) error {
			return host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", name, of.limit)}, of.fresh())
		}
		var late, early string
		for i := range of.most + 1 {
			name := fmt.Sprintf("%s-%d", of.names, i)
			switch err := onHost(ctx, name); {
			case apierrors.IsNotFound(err):
				late = name
			case err != nil:
				t.Fatal(err)
			default:
				early = name
			}
		}
		env.awaitWarning(t, kind, late, fmt.Sprintf("at most %d ", of.most))
		leaves := of.fresh()
		leaves.SetNamespace("default")
		leaves.SetName(early)
		if err := space.Delete(ctx, leaves); err != nil {
			t.Fatal(err)
		}
		testhost.Eventually(t, "see "+late+" take its place", func(ctx context.Context) error { return onHost(ctx, late) })
	}
}

// T8: what the host says of a gateway, and of a route, wakes the space, which
// knows it when it is awake again.
func TestASpaceWakesForItsGatewaysAndRoutes(t *testing.T) {
	t.Parallel()
	env, host, space := gatewayEnv(t, "gwwakes")
	v, r := newGateway("shop", "gwwakes-imported", "shop.gwwakes.example"), newRoute("shop", "shop", "shop.gwwakes.example", "web")
	for _, o := range []client.Object{v, r} {
		Served(t, space, o)
	}
	h, hr := &gatewayv1.Gateway{}, &gatewayv1.HTTPRoute{}
	testhost.Eventually(t, "see the gateway", func(ctx context.Context) error {
		return host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", "shop", translate.LimitLabel)}, h)
	})
	testhost.Eventually(t, "see the route", func(ctx context.Context) error {
		return host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName("shop")}, hr)
	})
	asleep := env.sleep()
	asleep.stop()
	status := func(o client.Object, change func()) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := host.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			change()
			return host.Status().Update(ctx, o)
		}
	}
	for _, change := range []step{
		{"status of the gateway", status(h, func() {
			h.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Type: ptr.To(gatewayv1.IPAddressType), Value: "203.0.113.7"}}
		})},
		{"status of the route", status(hr, func() {
			hr.Status.Parents = []gatewayv1.RouteParentStatus{{
				ParentRef: hr.Spec.ParentRefs[0], ControllerName: "host.example/controller",
				Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now()}},
			}}
		})},
		{"end of the route", func(ctx context.Context) error { return host.Delete(ctx, hr) }},
	} {
		asleep.wakes.Store(0)
		asleep.register()
		env.play([]step{change, {"wake for the " + change.name, func(context.Context) error {
			if n := asleep.wakes.Load(); n != 1 {
				return fmt.Errorf("woken %d times", n)
			}
			return nil
		}}})
	}
	env.begin(nil)
	testhost.Eventually(t, "know the address, and make the route again", func(ctx context.Context) error {
		if err := space.Get(ctx, client.ObjectKeyFromObject(v), v); err != nil {
			return err
		}
		if len(v.Status.Addresses) != 1 {
			return fmt.Errorf("its addresses are %v", v.Status.Addresses)
		}
		return host.Get(ctx, client.ObjectKeyFromObject(hr), &gatewayv1.HTTPRoute{})
	})
}
