// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/owners"
	"github.com/berth-dev/berth/operator/tree"
)

const (
	// fieldOwner is the field manager of the operator.
	fieldOwner = client.FieldOwner("berth-operator")
	// statusPause is how long to wait, at most, after a space was written. The event of that write usually comes first.
	statusPause = time.Second
	// conflictPause is how long to wait after a conflict, until the cache has what was written in the meantime.
	conflictPause = 100 * time.Millisecond
)

// reconciler reconciles Tenants. It is safe for concurrent use.
type reconciler struct {
	client client.Client // reads from the cache
	live   client.Reader // reads from the host
	events events.EventRecorder
	// enqueue adds tenants to reconcile. The controller sets it before the first reconcile.
	enqueue func(names ...string)

	// mu is held from a check of the tree to the change that was checked.
	mu     sync.Mutex
	tree   tree.Tree
	loaded bool
}

// run is one reconcile of a tenant.
type run struct {
	*reconciler
	tenant   *v1alpha1.Tenant
	config   *v1alpha1.BerthConfiguration // nil while there is none
	spaces   []v1alpha1.Space             // of the tenant, by name
	children []v1alpha1.Tenant            // directly below, whether the tree accepts them or not
	rights   *owners.Rights               // nil until they are known
	pool     *pool                        // nil if it isn't known
	problem  *problem
	released bool
	applied  bool       // a space was written
	quota    quantities // nil until it is known
}

// problem is why Ready is False.
type problem struct {
	reason, message string
	state           v1alpha1.TenantState
}

// errStop ends the steps of a reconcile. What is wrong is in the status.
var errStop = errors.New("stop")

// flag reports a problem, unless an earlier step has found one. The steps go on.
func (one *run) flag(p *problem) {
	if one.problem == nil {
		one.problem = p
	}
}

// Reconcile implements [reconcile.Reconciler].
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	one, err := r.read(ctx, request.Name)
	if apierrors.IsNotFound(err) {
		r.forget(request.Name)
		return reconcile.Result{}, r.reportOrphans(ctx, request.Name)
	}
	if err == nil {
		err = one.reconcile(ctx)
	}
	if err == nil && one.applied {
		return reconcile.Result{RequeueAfter: statusPause, Priority: ptr.To(0)}, nil
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // the cache is behind
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	return reconcile.Result{}, err
}

func (one *run) reconcile(ctx context.Context) error {
	steps := []func(context.Context) error{one.protect, one.accept, one.mark, one.findRights, one.limit, one.findPool, one.createSpace, one.applySpaces}
	if one.deleting() {
		steps = []func(context.Context) error{one.deleteChildren, one.deleteSpaces, one.removeLedger, one.release}
	} else if one.config == nil {
		return nil // it is created, and then all tenants are reconciled
	}
	var err error
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	// A right reaches all spaces before the status of any tenant is written: that waits for the next reconcile.
	if one.released || err == nil && one.applied && one.problem == nil {
		return err
	}
	if one.problem == nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
		one.problem = &problem{reason: v1alpha1.ReasonInvalidSpec, message: err.Error(), state: v1alpha1.TenantInvalid}
	}
	return errors.Join(err, one.writeStatus(ctx))
}

// read reads a tenant and what belongs to it from the cache.
func (r *reconciler) read(ctx context.Context, name string) (*run, error) {
	one := &run{reconciler: r, tenant: &v1alpha1.Tenant{}}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, one.tenant); err != nil {
		return nil, fmt.Errorf("read tenant %s: %w", name, err)
	}
	config := &v1alpha1.BerthConfiguration{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: v1alpha1.ConfigurationName}, config); {
	case err == nil:
		one.config = config
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var err error
	if one.children, err = r.childrenOf(ctx, r.client, one.tenant); err != nil {
		return nil, err
	}
	one.spaces, err = spaces(ctx, r.client, name)
	return one, err
}

// childrenOf returns the tenants directly below one, without those that are above it, too. The tree refuses such a cycle. If its tenants
// counted each other, their sums would grow without end, and none of them could be deleted before the others.
func (r *reconciler) childrenOf(ctx context.Context, c client.Reader, tenant *v1alpha1.Tenant) ([]v1alpha1.Tenant, error) {
	list := &v1alpha1.TenantList{}
	if err := c.List(ctx, list, client.MatchingFields{parentField: tenant.Name}); err != nil {
		return nil, fmt.Errorf("list tenants below %s: %w", tenant.Name, err)
	}
	if _, accepted := r.tree.Get(tenant.Name); accepted || len(list.Items) == 0 {
		return list.Items, nil
	}
	above, err := r.namedAbove(ctx, tenant)
	return slices.DeleteFunc(list.Items, func(child v1alpha1.Tenant) bool { return above[child.Name] }), err
}

// spaces returns the spaces of a tenant, by name.
func spaces(ctx context.Context, c client.Reader, name string) ([]v1alpha1.Space, error) {
	list := &v1alpha1.SpaceList{}
	if err := c.List(ctx, list, client.MatchingFields{tenantField: name}); err != nil {
		return nil, fmt.Errorf("list spaces of tenant %s: %w", name, err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Space) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// deleting reports whether the tenant is deleted, and may be.
func (one *run) deleting() bool { return !one.tenant.DeletionTimestamp.IsZero() && !one.reserved() }

// reserved reports whether the tenant always exists (T3, T4).
func (one *run) reserved() bool {
	name := one.tenant.Name
	return name == v1alpha1.SystemTenant || name == v1alpha1.DefaultTenant || one.config != nil && name == one.config.Spec.DefaultTenantName
}
