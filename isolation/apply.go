// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/translate"
)

// ErrTaken is returned if the host namespace of a space belongs to somebody else.
var ErrTaken = errors.New("host namespace is taken")

// fieldOwner is Berth's field manager for isolation objects. Changes of admins to other fields stay. It is an earlier
// name of the package, which must not change because hosts have stored it.
const fieldOwner = "berth-tenancy"

// writers is how many objects of a space are written at the same time.
const writers = 4

// CheckSpaceName returns an error if the name of a space is invalid.
func CheckSpaceName(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("space name %q: %s", name, problems[0])
	}
	if len(name) > translate.MaxSpaceName {
		return fmt.Errorf("space name %q: %d characters, at most %d are allowed", name, len(name), translate.MaxSpaceName)
	}
	if name == "system" || name == "host" {
		return fmt.Errorf("space name %q is reserved; choose another", name)
	}
	return nil
}

// Apply creates or repairs the objects that isolate a space. Their order makes sure that nothing is open at any moment,
// and it may be repeated. It applies each object by name, so that the host need only grant the right to write these
// names.
func Apply(ctx context.Context, host client.Client, space translate.Space, quota corev1.ResourceList, options ...Option) error {
	ns := &corev1.Namespace{}
	err := host.Get(ctx, client.ObjectKey{Name: space.HostNamespace()}, ns)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read host namespace %s: %w", space.HostNamespace(), err)
	}
	ours := space.Store != "" && ns.Annotations[translate.AnnotationStore] == space.Store
	if err == nil && ns.Labels[translate.LabelSpace] != space.Name && !ours {
		return fmt.Errorf("%w: %s is not labelled %s=%s; remove it or name the space differently", ErrTaken, ns.Name, translate.LabelSpace, space.Name)
	}
	// A namespace without the label was created by an older version of Berth.
	if platform := ns.Labels[translate.LabelPlatform]; platform != "" && platform != space.Platform {
		return fmt.Errorf("%w: %s is a space's of the platform %s (label %s); name the space differently", ErrTaken, ns.Name, platform, translate.LabelPlatform)
	}
	if id, marked := ns.Annotations[translate.AnnotationStore]; marked && id != space.Store {
		return fmt.Errorf("%w: %s holds what another store's space %s runs; name the space differently, or, to let this store delete all of it, "+
			"remove the annotation %s from the namespace", ErrTaken, ns.Name, space.Name, translate.AnnotationStore)
	}
	patch := func(o client.Object) error {
		// A conflict is about the quota, whose usage the host updates at the same time.
		return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
			//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
			return host.Patch(ctx, o, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership)
		})
	}
	apply := func(o client.Object) error {
		policy, _ := o.DeepCopyObject().(*networkingv1.NetworkPolicy)
		err := patch(o)
		if err == nil && policy != nil && difference(policy, o, false) != "" {
			err = patch(whole(policy))
		}
		if err != nil {
			return fmt.Errorf("apply %s of space %s: %w", describe(o), space.Name, err)
		}
		return nil
	}
	// The role of a binding is immutable. It differs if somebody replaced the binding, or if the space belonged to
	// another release or to `berth up`.
	bind := func(o client.Object) error {
		again, _ := o.DeepCopyObject().(client.Object) // apply writes the result into o
		wanted := subjectsOf(o)
		err := apply(o)
		// If nobody must be bound, subjects that another field manager also applied would stay.
		if err == nil && (wanted > 0 || subjectsOf(o) == 0) || err != nil && !apierrors.IsInvalid(err) {
			return err
		}
		if err := host.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("replace %s of space %s: %w", describe(o), space.Name, err)
		}
		return apply(again)
	}
	settings := set(options)
	allowed, err := alreadyCounted(ctx, host, space)
	if err == nil && ns.Name != "" {
		err = removeScopedQuotas(ctx, host, space, settings.scoped)
	}
	if err != nil {
		return err
	}
	write := func(o client.Object) error {
		switch o := o.(type) {
		case *corev1.ResourceQuota:
			if o.Name != objectName {
				break
			}
			if settings.place != nil {
				return settings.place(ctx)
			}
			if quota != nil {
				break
			}
			kept, err := keepQuota(ctx, host, o)
			if err != nil {
				return fmt.Errorf("apply quota of space %s: %w", space.Name, err)
			}
			if kept {
				return nil
			}
		case *corev1.Namespace:
			ns = o // the result, which has a UID
		case *rbacv1.RoleBinding:
			return bind(o)
		}
		return apply(o)
	}
	for _, stage := range stages(Objects(allowed, quota, options...)) {
		if err := writeAll(stage, write); err != nil {
			return err
		}
	}
	if len(allowed.Settings.Counted) < len(space.Settings.Counted) {
		if err := awaitCounted(ctx, host, space); err != nil {
			return err
		}
		if err := apply(namespace(space, settings)); err != nil {
			return err
		}
	}
	for _, right := range slices.Concat(classRights(space, ns, settings), dedicatedObjects(space, ns, settings)) {
		if err := bind(right); err != nil {
			return err
		}
	}
	return nil
}

// stages returns objects in the order in which they may be written: the namespace, what limits the space, the role of its account, and then
// the bindings. So the account gets no right before the limits are there that go with it. Within a stage, the order doesn't matter, because
// nothing runs in a new space before its account has rights, and limits replace none of each other.
func stages(objects []client.Object) [4][]client.Object {
	var stages [4][]client.Object
	for _, o := range objects {
		stage := 1
		switch o.(type) {
		case *corev1.Namespace:
			stage = 0
		case *rbacv1.Role:
			stage = 2
		case *rbacv1.RoleBinding:
			stage = 3
		}
		stages[stage] = append(stages[stage], o)
	}
	return stages
}

// writeAll writes objects at the same time, as a space that moves waits for it.
func writeAll(objects []client.Object, write func(client.Object) error) error {
	errs := make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, o := range objects {
		group.Go(func() error {
			errs[i] = safego.Call("apply "+describe(o), func() error { return write(o) })
			return nil // which errors there are must not depend on which came first
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// subjectsOf returns the number of subjects of a binding.
func subjectsOf(o client.Object) int {
	switch o := o.(type) {
	case *rbacv1.RoleBinding:
		return len(o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		return len(o.Subjects)
	default:
		return 0
	}
}

// whole returns a network policy with an explicit field for each direction, even if it allows nothing, because apply
// does not change missing fields that somebody else has set. The host does not store an empty list, so each apply is a
// write.
func whole(policy *networkingv1.NetworkPolicy) client.Object {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil { // can't happen for a type of Kubernetes
		return policy
	}
	spec, _ := fields["spec"].(map[string]any)
	for _, direction := range []string{"ingress", "egress"} {
		if _, open := spec[direction]; !open {
			spec[direction] = []any{}
		}
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: fields}
}

// keepQuota keeps the numbers of an existing quota, which an admin may have changed, and adds missing ones: a space
// that is older than the sync of a kind must get a limit of it, too. It reports whether there is a quota.
func keepQuota(ctx context.Context, host client.Client, defaults *corev1.ResourceQuota) (kept bool, err error) {
	have := &corev1.ResourceQuota{}
	if err := host.Get(ctx, client.ObjectKeyFromObject(defaults), have); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	want := have.DeepCopy()
	want.Spec.Hard = maps.Clone(defaults.Spec.Hard)
	maps.Copy(want.Spec.Hard, have.Spec.Hard)
	for key, value := range defaults.Labels { // the watch selects by them
		metav1.SetMetaDataLabel(&want.ObjectMeta, key, value)
	}
	if len(want.Spec.Hard) == len(have.Spec.Hard) && maps.Equal(want.Labels, have.Labels) {
		return true, nil
	}
	return true, host.Patch(ctx, want, client.MergeFrom(have))
}
