// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	mutatingpolicies "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy/storage"
	mutatingpolicybindings "k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding/storage"
	validatingpolicies "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy/storage"
	validatingpolicybindings "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding/storage"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	podlog "k8s.io/kubernetes/pkg/registry/core/pod/rest"
	pods "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	services "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccounts "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
)

// Some registries keep what no context leads to: services their allocators of
// addresses and ports, policies the discovery of the space's types, tokens the
// space's key, and those that connect to pods the space's way to reach them.
// For these, the shared registry answers what is the same in all spaces, and
// hands the rest to the space's own.

// own returns what serves the resource in place of the shared registry shared.
func own(resource schema.GroupVersionResource, shared rest.Storage) rest.Storage {
	o := owner{resource}
	switch s := shared.(type) {
	case *services.REST:
		return ownRegistry{Store: s.Store, owner: o, shortNames: s.ShortNames(), categories: s.Categories()}
	case *validatingpolicies.REST:
		return ownRegistry{Store: s.Store, owner: o, categories: s.Categories()}
	case *validatingpolicybindings.REST:
		return ownRegistry{Store: s.Store, owner: o, categories: s.Categories()}
	case *mutatingpolicies.REST:
		return ownRegistry{Store: s.Store, owner: o, categories: s.Categories()}
	case *mutatingpolicybindings.REST:
		return ownRegistry{Store: s.Store, owner: o, categories: s.Categories()}
	case *componentstatus.REST:
		// Upstream's dials ports of this machine. There are no components.
		return componentstatus.NewStorage(func() map[string]componentstatus.Server { return nil })
	case *services.StatusREST:
		return ownStatus{s, o}
	case *validatingpolicies.StatusREST:
		return ownStatus{s, o}
	case *serviceaccounts.TokenREST:
		return ownToken{s, o}
	case *tokenreview.REST:
		return ownReview{s, o}
	case *pods.EvictionREST:
		return ownEviction{s, o}
	case *podlog.LogREST:
		return ownLog{s, o}
	case rest.Connecter:
		return ownConnecter{shared, s, o}
	}
	return shared
}

// Own returns those of a group's registries that each space must have of its own, by their resources, with bounds for their
// validation errors.
func Own(group string, storages map[string]rest.Storage) map[string]rest.Storage {
	all := maps.Clone(storages)
	boundErrors(group, all)
	for resource, s := range storages {
		if !isOwn(s) {
			delete(all, resource)
		}
	}
	return all
}

func isOwn(s rest.Storage) bool {
	_, wrapped := own(schema.GroupVersionResource{}, s).(interface{ isOwn() })
	return wrapped
}

// Strip takes from a space's own registry what the shared one answers: printers
// are most of what a registry takes. Status registries are copies, and short.
func Strip(s rest.Storage) {
	switch s := s.(type) {
	case *services.REST:
		s.TableConvertor = nil
	case *pods.REST:
		s.TableConvertor = nil
	case *serviceaccounts.REST:
		s.TableConvertor = nil
	}
}

// owner finds the space's own registry of a resource.
type owner struct{ resource schema.GroupVersionResource }

func (owner) isOwn() {}

func ownOf[T any](ctx context.Context, o owner) (T, error) {
	var none T
	space, err := spaceOf(ctx)
	if err != nil {
		return none, err
	}
	s, err := space.Own(o.resource)
	if err != nil {
		return none, fmt.Errorf("open registry of %s: %w", o.resource, err)
	}
	t, ok := s.(T)
	if !ok {
		return none, fmt.Errorf("internal error: the registry of %s is a %T", o.resource, s)
	}
	return t, nil
}

// ownRegistry reads as all do, and writes as the space does.
type ownRegistry struct {
	*genericregistry.Store
	owner
	shortNames, categories []string
}

func (r ownRegistry) ShortNames() []string { return r.shortNames }
func (r ownRegistry) Categories() []string { return r.categories }

func (r ownRegistry) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions,
) (runtime.Object, error) {
	s, err := ownOf[rest.StandardStorage](ctx, r.owner)
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, obj, validate, o)
}

func (r ownRegistry) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	s, err := ownOf[rest.StandardStorage](ctx, r.owner)
	if err != nil {
		return nil, false, err
	}
	return s.Update(ctx, name, info, create, update, forceCreate, o)
}

func (r ownRegistry) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	s, err := ownOf[rest.StandardStorage](ctx, r.owner)
	if err != nil {
		return nil, false, err
	}
	return s.Delete(ctx, name, validate, o)
}

func (r ownRegistry) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions, list *internalversion.ListOptions,
) (runtime.Object, error) {
	s, err := ownOf[rest.StandardStorage](ctx, r.owner)
	if err != nil {
		return nil, err
	}
	return s.DeleteCollection(ctx, validate, o, list)
}

// ownStatus is the status of something whose registry is the space's own.
type ownStatus struct {
	statusRegistry
	owner
}

type statusRegistry interface {
	rest.Storage
	rest.Patcher
	rest.ResetFieldsStrategy
	rest.TableConvertor
}

func (r ownStatus) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceCreate bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	s, err := ownOf[rest.Updater](ctx, r.owner)
	if err != nil {
		return nil, false, err
	}
	return s.Update(ctx, name, info, create, update, forceCreate, o)
}

type ownToken struct {
	*serviceaccounts.TokenREST
	owner
}

func (r ownToken) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions,
) (runtime.Object, error) {
	return createOwn(ctx, r.owner, name, obj, validate, o)
}

// creator makes what needs no name.
type creator interface {
	Create(context.Context, runtime.Object, rest.ValidateObjectFunc, *metav1.CreateOptions) (runtime.Object, error)
}

// ownReview is of tokens: upstream's hands them to the authenticator without the
// call's context.
type ownReview struct {
	*tokenreview.REST
	owner
}

func (r ownReview) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions,
) (runtime.Object, error) {
	s, err := ownOf[creator](ctx, r.owner)
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, obj, validate, o)
}

type ownEviction struct {
	*pods.EvictionREST
	owner
}

func (r ownEviction) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions,
) (runtime.Object, error) {
	return createOwn(ctx, r.owner, name, obj, validate, o)
}

func createOwn(
	ctx context.Context, own owner, name string, obj runtime.Object, validate rest.ValidateObjectFunc, o *metav1.CreateOptions,
) (runtime.Object, error) {
	s, err := ownOf[rest.NamedCreater](ctx, own)
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, name, obj, validate, o)
}

type ownLog struct {
	*podlog.LogREST
	owner
}

func (r ownLog) Get(ctx context.Context, name string, opts runtime.Object) (runtime.Object, error) {
	s, err := ownOf[rest.GetterWithOptions](ctx, r.owner)
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, name, opts)
}

// ownConnecter is exec, attach, port forwarding and proxies.
type ownConnecter struct {
	rest.Storage
	shared rest.Connecter
	owner
}

func (r ownConnecter) NewConnectOptions() (runtime.Object, bool, string) {
	return r.shared.NewConnectOptions()
}
func (r ownConnecter) ConnectMethods() []string { return r.shared.ConnectMethods() }

func (r ownConnecter) Connect(ctx context.Context, id string, o runtime.Object, responder rest.Responder) (http.Handler, error) {
	s, err := ownOf[rest.Connecter](ctx, r.owner)
	if err != nil {
		return nil, err
	}
	return s.Connect(ctx, id, o, responder)
}
