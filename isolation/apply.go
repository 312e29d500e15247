// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// ErrTaken says that the host namespace of a space belongs to somebody else.
var ErrTaken = errors.New("host namespace is taken")

// fieldOwner names Berth in the managed fields of isolation objects: what admins
// change in other fields stays. It is the package's former name, because hosts
// have stored it.
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

// Apply creates or repairs the objects that isolate a space, in an order that
// leaves nothing open at any moment, and is repeatable. It applies each object by
// name, so that the host can grant the right to write these names and no others.
func Apply(ctx context.Context, host client.Client, space translate.Space, quota corev1.ResourceList, options ...Option) error {
	ns := &corev1.Namespace{}
	err := host.Get(ctx, client.ObjectKey{Name: space.HostNamespace()}, ns)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read host namespace %s: %w", space.HostNamespace(), err)
	}
	if err == nil && ns.Labels[translate.LabelSpace] != space.Name {
		return fmt.Errorf("%w: %s is not labelled %s=%s; remove it or name the space differently", ErrTaken, ns.Name, translate.LabelSpace, space.Name)
	}
	// A namespace without the label is one that an older Berth made.
	if platform := ns.Labels[translate.LabelPlatform]; platform != "" && platform != space.Platform {
		return fmt.Errorf("%w: %s is a space's of the platform %s (label %s); name the space differently", ErrTaken, ns.Name, platform, translate.LabelPlatform)
	}
	if id, marked := ns.Annotations[translate.AnnotationStore]; marked && id != space.Store {
		return fmt.Errorf("%w: %s holds what another store's space %s runs; name the space differently, or, to let this store delete all of it, "+
			"remove the annotation %s from the namespace", ErrTaken, ns.Name, space.Name, translate.AnnotationStore)
	}
	apply := func(o client.Object) error {
		// A conflict is over the quota, which counts up meanwhile.
		err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
			//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
			return host.Patch(ctx, o, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership)
		})
		if err != nil {
			return fmt.Errorf("apply %s %s of space %s: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), space.Name, err)
		}
		return nil
	}
	for _, o := range Objects(space, quota, options...) {
		switch o := o.(type) {
		case *corev1.ResourceQuota:
			if quota != nil {
				break
			}
			kept, err := keepQuota(ctx, host, o)
			if err != nil {
				return fmt.Errorf("apply quota of space %s: %w", space.Name, err)
			}
			if kept {
				continue
			}
		case *corev1.Namespace:
			ns = o // which has an identity once it is applied
		}
		if err := apply(o); err != nil {
			return err
		}
	}
	o := set(options)
	for _, right := range slices.Concat(classRights(space, ns, o), dedicatedObjects(space, ns, o)) {
		err := apply(right)
		// The role of a binding is immutable. It is another one if the space was another release's, or `berth up`'s.
		if _, binding := right.(*rbacv1.ClusterRoleBinding); binding && apierrors.IsInvalid(err) {
			if err := host.Delete(ctx, right); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("replace ClusterRoleBinding %s of space %s: %w", right.GetName(), space.Name, err)
			}
			err = apply(right)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepQuota leaves an admin's own numbers in a quota that is there, and adds
// those that it lacks: a space that was made before Berth synced a kind is to
// have a bound on it, too. It reports whether there is one.
func keepQuota(ctx context.Context, host client.Client, defaults *corev1.ResourceQuota) (kept bool, err error) {
	have := &corev1.ResourceQuota{}
	if err := host.Get(ctx, client.ObjectKeyFromObject(defaults), have); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	want := have.DeepCopy()
	hard := maps.Clone(defaults.Spec.Hard)
	maps.Copy(hard, have.Spec.Hard)
	if len(hard) == len(have.Spec.Hard) {
		return true, nil
	}
	want.Spec.Hard = hard
	return true, host.Patch(ctx, want, client.MergeFrom(have))
}
