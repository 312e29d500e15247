// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
)

// Q4, Q3 (finding B17): a device is for the space's account only while the host's quota counts it: at no moment before, and not after.
func TestDevicesAreAllowedWhileTheHostCountsThem(t *testing.T) {
	const gpu, counted = corev1.ResourceName("example.com/gpu"), corev1.ResourceName("requests.example.com/gpu")
	c, err := client.NewWithWatch(startCluster(t), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	names := func(ns client.Object) bool {
		return strings.Contains(ns.GetAnnotations()[hostpolicy.AnnotationPodResources], string(gpu))
	}
	quotaOf := func(ctx context.Context, space translate.Space) *corev1.ResourceQuota {
		quota := &corev1.ResourceQuota{}
		if err := c.Get(ctx, isolation.QuotaKey(space), quota); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		return quota
	}
	space := translate.Space{Name: "devices"}
	var crash error
	watched := interceptor.NewClient(c, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
		switch o := o.(type) {
		case *corev1.Namespace:
			if _, enforced := quotaOf(ctx, space).Status.Hard[counted]; names(o) && !enforced {
				t.Error("the namespace allows a device that the quota doesn't count yet")
			}
		case *corev1.ResourceQuota:
			ns := &corev1.Namespace{}
			if err := c.Get(ctx, client.ObjectKey{Name: space.HostNamespace()}, ns); err != nil {
				t.Error(err)
			}
			if _, counts := o.Spec.Hard[counted]; names(ns) && !counts {
				t.Error("the quota no longer counts a device that the namespace allows")
			}
		}
		err := c.Patch(ctx, o, patch, options...)
		if _, quota := o.(*corev1.ResourceQuota); quota && err == nil {
			err = crash
		}
		return err
	}})
	apply := func(t *testing.T, hard string) error {
		t.Helper()
		quota := maps.Clone(v1alpha1.DefaultQuota())
		if hard != "" {
			quota[counted] = resource.MustParse(hard)
		}
		space.Settings.Counted = translate.CountedBy(quota)
		return isolation.Apply(t.Context(), watched, space, quota)
	}
	check := func(t *testing.T, allowed bool) {
		t.Helper()
		ns := &corev1.Namespace{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: space.HostNamespace()}, ns); err != nil {
			t.Fatal(err)
		}
		if names(ns) != allowed {
			t.Errorf("annotations of the namespace: %v", ns.Annotations)
		}
	}
	for _, hard := range []string{"", "4", "2", "", "4", "0"} {
		if err := apply(t, hard); err != nil {
			t.Fatal(err)
		}
		check(t, hard != "")
	}
	if err := apply(t, ""); err != nil {
		t.Fatal(err)
	}
	crash = context.Canceled
	if err := apply(t, "4"); err == nil {
		t.Fatal("no crash")
	}
	check(t, false)
	crash = nil
	if err := apply(t, "4"); err != nil {
		t.Fatal(err)
	}
	check(t, true)
}
