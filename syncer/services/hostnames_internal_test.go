// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// L3: host names with many labels are looked for as fast as others; a wildcard that covers one is found.
func TestHostileHostNamesAreNotLookedForByEachLabel(t *testing.T) {
	t.Parallel()
	h := &hostcache.Host{Routers: map[string]*hostcache.Router{}}
	for _, resource := range []string{resources.Ingresses, resources.Gateways, resources.HTTPRoutes} {
		h.Routers[resource] = hostcache.NewRouter(resource, nil)
	}
	k := &engine.Resource[*networkingv1.Ingress]{Engine: &engine.Engine{Host: h, Space: translate.Space{Name: "demo"}}, Name: resources.Ingresses, NameLimit: translate.LimitSubdomain}
	deep := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deep"}}
	for i := range 400_000 {
		deep.Spec.Rules = append(deep.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprint("h", i, ".", strings.Repeat(fmt.Sprintf("%c.", 'a'+i%26), 120), "z")})
	}
	done := make(chan field.ErrorList, 1)
	go func() { done <- unclaimed(k, deep, field.NewPath("spec")) }()
	select {
	case errs := <-done:
		if len(errs) > 0 {
			t.Errorf("got %d errors", len(errs))
		}
	case <-time.After(30 * time.Second): // many times what it takes
		t.Error("it does not end")
	}

	theirs := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "all"}}
	theirs.Spec.Rules = []networkingv1.IngressRule{{Host: "*.a.covered.example"}, {Host: "plain.example"}}
	if err := h.Routers[resources.Ingresses].Add(theirs); err != nil {
		t.Fatal(err)
	}
	v := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "v"}}
	for _, host := range []string{"x.y.a.covered.example", "covered.example", "plain.example", "also.plain.example"} {
		v.Spec.Rules = append(v.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	errs := unclaimed(k, v, field.NewPath("spec"))
	if got := fmt.Sprint(errs.ToAggregate()); len(errs) != 2 || !strings.Contains(got, "name x.y.a.covered.example is") || !strings.Contains(got, "name plain.example is") {
		t.Errorf("got %s", got)
	}
}
