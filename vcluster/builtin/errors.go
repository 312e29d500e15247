// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/berth-dev/berth/vcluster/invalid"
)

// boundedCreate and boundedUpdate are strategies that return no more validation errors than an answer lists: see package invalid.
// Upstream asks of both whether they validate declaratively, and otherwise asserts nothing of them: package internal/upstream has
// the list of what it asserts of strategies.
type (
	boundedCreate struct{ rest.RESTCreateStrategy }
	boundedUpdate struct{ rest.RESTUpdateStrategy }
)

func (s boundedCreate) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return invalid.Cut(s.RESTCreateStrategy.Validate(ctx, obj))
}

func (s boundedUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return invalid.Cut(s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old))
}

func (s boundedCreate) ValidateDeclaratively(
	ctx context.Context, obj, old runtime.Object, errs field.ErrorList, operation operation.Type, config rest.DeclarativeValidationConfig,
) field.ErrorList {
	return validateDeclaratively(ctx, s.RESTCreateStrategy, obj, old, errs, operation, config)
}

func (s boundedCreate) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) rest.DeclarativeValidationConfig {
	return declarativeConfig(ctx, s.RESTCreateStrategy, obj, old)
}

func (s boundedUpdate) ValidateDeclaratively(
	ctx context.Context, obj, old runtime.Object, errs field.ErrorList, operation operation.Type, config rest.DeclarativeValidationConfig,
) field.ErrorList {
	return validateDeclaratively(ctx, s.RESTUpdateStrategy, obj, old, errs, operation, config)
}

func (s boundedUpdate) DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) rest.DeclarativeValidationConfig {
	return declarativeConfig(ctx, s.RESTUpdateStrategy, obj, old)
}

// validateDeclaratively returns errs, which are those of upstream's other validation, with those of the strategy's declarations, if
// it has any.
func validateDeclaratively(
	ctx context.Context, strategy any, obj, old runtime.Object, errs field.ErrorList, operation operation.Type, config rest.DeclarativeValidationConfig,
) field.ErrorList {
	declared, ok := strategy.(rest.DeclarativeValidationStrategy)
	if !ok {
		return errs
	}
	all := declared.ValidateDeclaratively(ctx, obj, old, errs, operation, config)
	if len(all) > len(errs) { // errs are short already
		return invalid.Cut(all)
	}
	return all
}

func declarativeConfig(ctx context.Context, strategy any, obj, old runtime.Object) rest.DeclarativeValidationConfig {
	if declared, ok := strategy.(rest.DeclarativeValidationStrategy); ok {
		return declared.DeclarativeValidationConfig(ctx, obj, old)
	}
	return rest.DeclarativeValidationConfig{}
}

// boundErrors has the registries of a group's version return no more validation errors than an answer lists. It replaces those
// of subresources that have a strategy of their own.
func boundErrors(group string, storages map[string]rest.Storage) {
	strategies := subresourceStrategies()
	for resource, s := range storages {
		if store := storeOf(s); store != nil {
			boundStrategies(store)
		}
		if of := strategies[schema.GroupResource{Group: group, Resource: resource}]; of != nil {
			storages[resource] = boundSubresource(resource, storages, of)
		}
	}
}

func boundStrategies(store *genericregistry.Store) {
	if _, bounded := store.CreateStrategy.(boundedCreate); !bounded && store.CreateStrategy != nil {
		store.CreateStrategy = boundedCreate{store.CreateStrategy}
	}
	if _, bounded := store.UpdateStrategy.(boundedUpdate); !bounded && store.UpdateStrategy != nil {
		store.UpdateStrategy = boundedUpdate{store.UpdateStrategy}
	}
}

// IsBounded reports whether all validation errors that the strategies of a registry return are bounded. A registry that keeps its
// strategies to itself is not.
func IsBounded(s rest.Storage) bool {
	switch s.(type) {
	case boundedStatus, boundedApproval, boundedPart:
		return true
	}
	store := storeOf(s)
	if store == nil {
		return false
	}
	_, create := store.CreateStrategy.(boundedCreate)
	_, update := store.UpdateStrategy.(boundedUpdate)
	return (create || store.CreateStrategy == nil) && (update || store.UpdateStrategy == nil)
}

// storeOf returns the store that a registry embeds, or nil.
func storeOf(s any) *genericregistry.Store {
	v := reflect.Indirect(reflect.ValueOf(s))
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); !f.Anonymous || !f.IsExported() {
			continue
		}
		switch embedded := v.Field(i).Interface().(type) {
		case *genericregistry.Store:
			return embedded
		case rest.StandardStorage: // of roles and their bindings
			return storeOf(embedded)
		}
	}
	return nil
}
