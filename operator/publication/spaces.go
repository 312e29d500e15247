// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"

	berthac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
)

const (
	// MaxPublications is how many publications a space may have, as its definition says.
	MaxPublications = 64
	// spaceManager is the field manager of spec.publications, and of the annotation with the tenant's labels.
	spaceManager = "berth-operator-publications"
)

// spaceReconciler sets the publications of the Spaces of tenants.
type spaceReconciler struct {
	client client.Client
	events events.EventRecorder
}

// Reconcile implements [reconcile.Reconciler]. The request names a Space.
func (r *spaceReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	space := &v1alpha1.Space{}
	if err := r.client.Get(ctx, request.NamespacedName, space); err != nil || !space.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	tenantLabels, publications, err := r.wanted(ctx, space)
	if err != nil {
		return reconcile.Result{}, err
	}
	have, err := berthac.ExtractSpace(space, spaceManager)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read fields of Space %s: %w", space.Name, err)
	}
	var own []string
	if have.Spec != nil {
		own = have.Spec.Publications
	}
	all := len(publications)
	publications = fitting(publications, space.Spec.Publications, own)
	r.reportShares(space, all-len(publications))
	if slices.Equal(own, publications) && have.Annotations[v1alpha1.AnnotationTenantLabels] == tenantLabels {
		return reconcile.Result{}, nil
	}
	config := berthac.Space(space.Name).WithUID(space.UID) // without the UID, it would create a Space that was deleted meanwhile
	if tenantLabels != "" {
		config.WithAnnotations(map[string]string{v1alpha1.AnnotationTenantLabels: tenantLabels})
	}
	if len(publications) > 0 {
		config.WithSpec(berthac.SpaceSpec().WithPublications(publications...))
	}
	if err := r.client.Apply(ctx, config, client.FieldOwner(spaceManager), client.ForceOwnership); err != nil {
		return reconcile.Result{}, fmt.Errorf("set publications of Space %s: %w", space.Name, err)
	}
	return reconcile.Result{}, nil
}

// wanted returns the labels of the tenant of a space as JSON, and the sorted names of the publications that select it.
func (r *spaceReconciler) wanted(ctx context.Context, space *v1alpha1.Space) (tenantLabels string, publications []string, err error) {
	if space.Spec.TenantName == "" {
		return "", nil, nil
	}
	tenant := &v1alpha1.Tenant{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: space.Spec.TenantName}, tenant); apierrors.IsNotFound(err) {
		return "", nil, nil
	} else if err != nil {
		return "", nil, fmt.Errorf("read Tenant %s: %w", space.Spec.TenantName, err)
	}
	if len(tenant.Labels) > 0 {
		text, err := json.Marshal(tenant.Labels)
		if err != nil {
			return "", nil, fmt.Errorf("write labels of Tenant %s: %w", tenant.Name, err)
		}
		tenantLabels = string(text)
	}
	list := &v1alpha1.PublicationList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return "", nil, fmt.Errorf("list Publications: %w", err)
	}
	for i := range list.Items {
		if selects(&list.Items[i], tenant) {
			publications = append(publications, list.Items[i].Name)
		}
	}
	slices.Sort(publications)
	shared, err := r.received(ctx, space, tenant)
	if err != nil {
		return "", nil, err
	}
	return tenantLabels, append(publications, shared...), nil // if there are too many, those of admins stay
}

// selects reports whether a publication is for the spaces of a tenant. An invalid selector selects none.
func selects(publication *v1alpha1.Publication, tenant *v1alpha1.Tenant) bool {
	selector, err := tenantsOf(publication)
	return err == nil && publication.DeletionTimestamp.IsZero() && selector.Matches(labels.Set(tenant.Labels))
}

// tenantsOf returns the selector of a publication's tenants. Without one, it selects all.
func tenantsOf(publication *v1alpha1.Publication) (labels.Selector, error) {
	if publication.Spec.Tenants == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(publication.Spec.Tenants)
}

// fitting returns those of the wanted publications that the space may have besides what an admin has set. Own are those of all
// that the operator has set.
func fitting(wanted, all, own []string) []string {
	others := 0
	for _, name := range all {
		if !slices.Contains(own, name) && !slices.Contains(wanted, name) {
			others++
		}
	}
	return wanted[:min(len(wanted), max(0, MaxPublications-others))]
}

// full returns how many spaces of selected tenants don't have a publication because they have too many.
func (r *reconciler) full(ctx context.Context, publication *v1alpha1.Publication, spaces []v1alpha1.Space) (count int, _ error) {
	for i := range spaces {
		spec := &spaces[i].Spec
		if len(spec.Publications) < MaxPublications || spec.TenantName == "" || slices.Contains(spec.Publications, publication.Name) {
			continue
		}
		tenant := &v1alpha1.Tenant{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: spec.TenantName}, tenant); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return 0, fmt.Errorf("read Tenant %s: %w", spec.TenantName, err)
		}
		if selects(publication, tenant) {
			count++
		}
	}
	return count, nil
}

// sameForPublications reports whether a change of a Space is of no concern to publications.
func sameForPublications(a, b *v1alpha1.Space) bool {
	return a.UID == b.UID && slices.Equal(a.Spec.Publications, b.Spec.Publications) && a.Spec.TenantName == b.Spec.TenantName && maps.Equal(a.Labels, b.Labels) &&
		a.Annotations[v1alpha1.AnnotationInheritsFrom] == b.Annotations[v1alpha1.AnnotationInheritsFrom] && a.Spec.Access.OwnerProfile == b.Spec.Access.OwnerProfile &&
		a.Annotations[v1alpha1.AnnotationTenantLabels] == b.Annotations[v1alpha1.AnnotationTenantLabels] && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}
