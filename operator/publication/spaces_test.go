// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

// P1: a space has the publications that select its tenant, whichever of them came first, and follows their labels.
func TestSpacesHaveThePublicationsOfTheirTenants(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	e.make(t, tenant("solar", map[string]string{"tier": "gold"}), tenant("wind", map[string]string{"tier": "tin"}), space("solar", "solar"), space("wind", "wind"), space("alone", ""))
	spec := v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}}
	all := e.publish(t, "sp-all", spec)
	spec.Tenants = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	gold := e.publish(t, "sp-gold", spec)
	spec.Tenants = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn}}}
	e.publish(t, "sp-invalid", spec)
	e.has(t, "solar", "sp-all", "sp-gold")
	e.has(t, "wind", "sp-all")
	e.has(t, "alone")
	e.reports(t, "sp-invalid", v1alpha1.ReasonInvalidSpec, "spec.tenants")
	e.counts(t, "sp-all", 2)
	e.counts(t, "sp-gold", 1)

	e.make(t, space("solar-dev", "solar"))
	e.has(t, "solar-dev", "sp-all", "sp-gold")
	e.counts(t, "sp-gold", 2)
	e.hasTenantLabels(t, "solar-dev", map[string]string{"tier": "gold"})

	wind := &v1alpha1.Tenant{}
	if err := e.Get(t.Context(), client.ObjectKey{Name: "wind"}, wind); err != nil {
		t.Fatal(err)
	}
	wind.Labels = map[string]string{"tier": "gold", "b": "c"}
	if err := e.Update(t.Context(), wind); err != nil {
		t.Fatal(err)
	}
	e.has(t, "wind", "sp-all", "sp-gold")
	e.hasTenantLabels(t, "wind", wind.Labels)

	for _, p := range []*v1alpha1.Publication{all, gold} {
		if err := e.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	e.has(t, "wind")
	e.has(t, "solar")
}

// P1: publications that an admin gives a space stay, and those of its tenant come back.
func TestAnAdminMayAddPublicationsToASpace(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	own := space("own", "own")
	own.Spec.Publications = []string{"own-admin"}
	e.make(t, tenant("own", nil), own)
	e.publish(t, "own-tenant", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}})
	e.has(t, "own", "own-admin", "own-tenant")
	testhost.Eventually(t, "remove the publication of the tenant by hand", func(ctx context.Context) error {
		have := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: "own"}, have); err != nil {
			return err
		}
		have.Spec.Publications = []string{"own-admin"}
		return e.Update(ctx, have)
	})
	e.has(t, "own", "own-admin", "own-tenant")
	alone := space("own-alone", "")
	alone.Spec.Publications = []string{"own-tenant"}
	e.make(t, alone)
	e.counts(t, "own-tenant", 2)
	e.has(t, "own-alone", "own-tenant")
}

// P1, L3
func TestASpaceHasABoundedNumberOfPublications(t *testing.T) {
	wanted := make([]string, 70)
	for i := range wanted {
		wanted[i] = fmt.Sprintf("p%02d", i)
	}
	if got := fitting(wanted, []string{"admin-1", "admin-2", "p00", "old"}, []string{"p00", "old"}); len(got) != 62 || got[0] != "p00" {
		t.Errorf("%d of 70 fit: %v", len(got), got)
	}
	if got := fitting(wanted[:3], nil, nil); len(got) != 3 {
		t.Errorf("%v fit", got)
	}
}

func (e *env) has(t *testing.T, space string, publications ...string) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("space %s has %q", space, publications), func(ctx context.Context) error {
		have := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: space}, have); err != nil {
			return err
		}
		if got := slices.Sorted(slices.Values(have.Spec.Publications)); !slices.Equal(got, publications) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

func (e *env) hasTenantLabels(t *testing.T, space string, want map[string]string) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("space %s has the labels of its tenant", space), func(ctx context.Context) error {
		have := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: space}, have); err != nil {
			return err
		}
		var labels map[string]string
		if err := json.Unmarshal([]byte(have.Annotations[v1alpha1.AnnotationTenantLabels]), &labels); err != nil || !maps.Equal(labels, want) {
			return errors.Join(err, fmt.Errorf("the annotations are %v", have.Annotations))
		}
		return nil
	})
}

func (e *env) counts(t *testing.T, publication string, want int32) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("count the spaces of %s", publication), func(ctx context.Context) error {
		p := &v1alpha1.Publication{}
		if err := e.Get(ctx, client.ObjectKey{Name: publication}, p); err != nil {
			return err
		}
		if p.Status.Spaces == nil || *p.Status.Spaces != want {
			return fmt.Errorf("the status is %+v", p.Status)
		}
		return nil
	})
}

func tenant(name string, labels map[string]string) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func space(name, tenant string) *v1alpha1.Space {
	return &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{TenantName: tenant}}
}
