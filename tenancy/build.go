// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// ErrTaken says that the host namespace of a space belongs to somebody else.
var ErrTaken = errors.New("host namespace is taken")

// fieldOwner names Berth in the field management of the walls: what admins
// change in other fields stays.
const fieldOwner = "berth-tenancy"

// CheckSpaceName says what is wrong with the name of a space, nil if nothing is.
func CheckSpaceName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("space name %q: %s", name, problems[0])
	}
	if len(name) > translate.MaxSpaceName {
		return fmt.Errorf("space name %q: %d characters, at most %d are allowed", name, len(name), translate.MaxSpaceName)
	}
	if name == "system" || name == "default" || name == "host" {
		return fmt.Errorf("space name %q is reserved; choose another", name)
	}
	return nil
}

// Build puts up or mends the walls of a space, in an order that leaves nothing
// open at any moment, and is repeatable. All that it writes it applies by name,
// so that the host can grant the right to write these names and no others.
func Build(ctx context.Context, host client.Client, space translate.Space, quota corev1.ResourceList, options ...Option) error {
	ns := &corev1.Namespace{}
	err := host.Get(ctx, client.ObjectKey{Name: space.HostNamespace()}, ns)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read host namespace %s: %w", space.HostNamespace(), err)
	}
	if err == nil && ns.Labels[translate.LabelSpace] != space.Name {
		return fmt.Errorf("%w: %s is not labelled %s=%s; remove it or name the space differently", ErrTaken, ns.Name, translate.LabelSpace, space.Name)
	}
	if id, marked := ns.Annotations[translate.AnnotationStore]; marked && id != space.Store {
		return fmt.Errorf("%w: %s holds what another store's space %s runs; name the space differently, or, to let this store delete all of it, "+
			"remove the annotation %s from the namespace", ErrTaken, ns.Name, space.Name, translate.AnnotationStore)
	}
	for _, wall := range Walls(space, quota, options...) {
		gvk := wall.GetObjectKind().GroupVersionKind()
		if wall, ok := wall.(*corev1.ResourceQuota); ok && quota == nil {
			// An admin's own numbers stay.
			err := host.Get(ctx, client.ObjectKeyFromObject(wall), &corev1.ResourceQuota{})
			if err == nil {
				continue
			}
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("read %s %s of space %s: %w", gvk.Kind, wall.GetName(), space.Name, err)
			}
		}
		//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
		if err := host.Patch(ctx, wall, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("build %s %s of space %s: %w", gvk.Kind, wall.GetName(), space.Name, err)
		}
	}
	return nil
}
