// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package defaults

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/publication"
)

// fieldOwner is the field manager of the operator.
const fieldOwner = client.FieldOwner("berth-operator")

// annotationFirst on the BerthConfiguration names the Publication that the operator has created besides it.
const annotationFirst = "berth.dev/first-publication"

// Defaults creates them.
type Defaults struct {
	// PlatformName is the name of the platform of new spaces, if the operator creates the configuration.
	PlatformName string
	// Tenant, if set, is the default tenant.
	Tenant string
}

// SetUp adds the controller to a manager.
func (d Defaults) SetUp(m manager.Manager) error {
	all := reconcile.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.ConfigurationName}}
	always := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} })
	c := m.GetClient()
	err := builder.ControllerManagedBy(m).Named("defaults").
		Watches(&v1alpha1.BerthConfiguration{}, always).
		Watches(&v1alpha1.Tenant{}, always).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(all)
			return nil
		})).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, d.create(ctx, c)
		}))
	if err != nil {
		return fmt.Errorf("make controller of defaults: %w", err)
	}
	return nil
}

func (d Defaults) create(ctx context.Context, c client.Client) error {
	config := &v1alpha1.BerthConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigurationName}}
	config.Spec.DefaultTenantName = d.Tenant
	if d.PlatformName != v1alpha1.DefaultPlatformName {
		config.Spec.TenantDefaults.PlatformName = d.PlatformName
	}
	if err := ensure(ctx, c, config); err != nil {
		return err
	}
	if err := d.nameTenant(ctx, c, config); err != nil {
		return err
	}
	if err := firstPublication(ctx, c, config); err != nil {
		return err
	}
	names := []string{v1alpha1.SystemTenant}
	if name := config.Spec.DefaultTenantName; name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, ensure(ctx, c, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return errors.Join(errs...)
}

// nameTenant writes the default tenant into the configuration, so that it is protected as one.
func (d Defaults) nameTenant(ctx context.Context, c client.Client, config *v1alpha1.BerthConfiguration) error {
	if d.Tenant == "" || config.Spec.DefaultTenantName == d.Tenant || config.UID == "" { // then its event comes
		return nil
	}
	before := config.DeepCopy()
	config.Spec.DefaultTenantName = d.Tenant
	if err := c.Patch(ctx, config, client.MergeFrom(before), fieldOwner); err != nil {
		return fmt.Errorf("set the default tenant in BerthConfiguration %s: %w", config.Name, err)
	}
	return nil
}

// firstPublication creates the Publication that a host begins with, once: an admin may delete it. An annotation of the configuration
// tells that it was created, whoever created the configuration.
func firstPublication(ctx context.Context, c client.Client, config *v1alpha1.BerthConfiguration) error {
	if config.Annotations[annotationFirst] != "" || config.UID == "" { // its event comes if it has just been created by somebody else
		return nil
	}
	if err := ensure(ctx, c, publication.Default()); apierrors.IsForbidden(err) { // the operator may lack that right
		return nil
	} else if err != nil {
		return err
	}
	marked := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, annotationFirst, publication.DefaultName)
	if err := c.Patch(ctx, marked, client.MergeFrom(config), fieldOwner); err != nil {
		return fmt.Errorf("mark BerthConfiguration %s: %w", config.Name, err)
	}
	return nil
}

// ensure creates an object if there is none of its name, and otherwise reads it.
func ensure(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		err = c.Create(ctx, object, fieldOwner)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // then the cache is behind, and its event will come
		return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
