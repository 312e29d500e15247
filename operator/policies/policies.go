// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies has the ValidatingAdmissionPolicies of the host by which tenants are deleted only on purpose: not with tenants
// below them unless that is asked for, and not those that always exist (T3, H7). The operator applies them if it may. The
// reconciler of Tenants holds to the same rules if a request came before a policy was in force.
package policies

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field manager of the operator.
const fieldOwner = client.FieldOwner("berth-operator")

//go:embed policies.yaml
var text []byte

// All returns the policies and their bindings, as new objects.
func All() (all []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read policies for tenants: %w", err)
		case object.Object != nil:
			all = append(all, object)
		}
	}
}

// Apply writes the policies and their bindings. It takes effect within moments after that.
func Apply(ctx context.Context, c client.Client) error {
	all, err := All()
	if err != nil {
		return err
	}
	for _, object := range all {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}
