// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// FieldManager is the field manager of what is applied. A field that a later manifest doesn't have is removed.
const FieldManager = "berth-apply"

// retryInterval is the time between two attempts.
const retryInterval = time.Second

// Read returns the objects of a manifest, YAML documents that hold objects of Berth's API. Unknown fields and other objects are
// errors.
func Read(text []byte) (objects []*unstructured.Unstructured, err error) {
	known := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	strict := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	documents, err := Documents(text)
	if err != nil {
		return nil, err
	}
	for _, d := range documents {
		if _, _, err := strict.Decode(d.JSON, nil, nil); err != nil {
			return nil, fmt.Errorf("read document %d: %w", d.Number, err)
		}
		// What is applied is what is written: a typed object would say more.
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(d.JSON, &object.Object); err != nil {
			return nil, fmt.Errorf("read document %d: %w", d.Number, err)
		}
		if object.GetName() == "" {
			return nil, fmt.Errorf("read document %d: %s: metadata.name must be set", d.Number, object.GetKind())
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Apply applies objects one after the other, and tries again until ctx ends: the host may not have their definitions yet. It returns
// an object that the host finds invalid as an error at once.
func Apply(ctx context.Context, host client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		var last error
		err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
			err := host.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner(FieldManager), client.ForceOwnership)
			if err == nil || last == nil || ctx.Err() == nil {
				last = err // a request that the deadline ends hides the cause
			}
			if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
				return false, err
			}
			return err == nil, nil
		})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), cmp.Or(last, err))
		}
	}
	return nil
}
