// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Ready waits until the condition Ready of a tenant or a space is True for its current spec. It fails at once if the condition
// is False for a reason that stays until somebody changes something.
func Ready(ctx context.Context, host client.Reader, object client.Object, progress io.Writer) error {
	name := Name(object)
	return Await(ctx, progress, name, func(ctx context.Context) (bool, string, error) {
		if err := host.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, "", err
		}
		ready := meta.FindStatusCondition(conditions(object), v1alpha1.ConditionReady)
		switch {
		case ready == nil:
			return false, "waiting for the operator and the platform to report", nil
		case ready.ObservedGeneration != 0 && ready.ObservedGeneration < object.GetGeneration():
			return false, "waiting for the change to be observed", nil
		case ready.Status == metav1.ConditionTrue:
			return true, "", nil
		case ready.Status == metav1.ConditionFalse && slices.Contains(lasting(), ready.Reason):
			return false, "", &NotReadyError{Name: name, Reason: ready.Reason, Message: ready.Message}
		}
		return false, strings.TrimSuffix(ready.Reason+": "+ready.Message, ": "), nil
	})
}

// NotReadyError is returned for an object that doesn't become ready by waiting.
type NotReadyError struct {
	// Name of the object, and the reason and the message of its condition.
	Name, Reason, Message string
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s doesn't become ready: %s: %s", e.Name, e.Reason, e.Message)
}

// lasting are the reasons of Ready that no controller can do anything about.
func lasting() []string {
	return []string{
		v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonOrphanedStore, v1alpha1.ReasonPaused, v1alpha1.ReasonInvalidParent, v1alpha1.ReasonNameTaken,
		v1alpha1.ReasonDeleting,
	}
}

// Deleted waits until an object doesn't exist anymore, or is another one of the same name.
func Deleted(ctx context.Context, host client.Reader, object client.Object, progress io.Writer) error {
	id := object.GetUID()
	return Await(ctx, progress, Name(object), func(ctx context.Context) (bool, string, error) {
		err := host.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) || err == nil && id != "" && object.GetUID() != id {
			return true, "", nil
		}
		if err != nil {
			return false, "", err
		}
		return false, remaining(object), nil
	})
}

// remaining says what a deletion waits for.
func remaining(object client.Object) string {
	message := "waiting for finalizers " + strings.Join(object.GetFinalizers(), ", ")
	if ready := meta.FindStatusCondition(conditions(object), v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue && ready.Message != "" {
		message = ready.Message
	}
	if tenant, ok := object.(*v1alpha1.Tenant); ok && len(tenant.Status.Spaces) > 0 {
		message += fmt.Sprintf(" (spaces left: %s)", strings.Join(tenant.Status.Spaces, ", "))
	}
	return message
}

// Name returns an object's name as kubectl prints it.
func Name(object client.Object) string {
	return strings.TrimSuffix(plural(object), "s") + "." + v1alpha1.GroupVersion.Group + "/" + object.GetName()
}

func plural(object client.Object) string {
	switch object.(type) {
	case *v1alpha1.Tenant:
		return "tenants"
	case *v1alpha1.Shard:
		return "shards"
	}
	return "spaces"
}

func conditions(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.Tenant:
		return o.Status.Conditions
	case *v1alpha1.Space:
		return o.Status.Conditions
	}
	return nil
}
