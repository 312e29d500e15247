// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/crdpolicy"
)

// CRDPolicyKey is the key of the CRDPolicy of a space in its store (C4). Its value is JSON.
const CRDPolicyKey = "/registry/" + crdPolicyPath + "/" + v1alpha1.CRDPolicyName

const crdPolicyPath = "access.berth.dev/crdpolicies"

func crdPolicies(scheme *runtime.Scheme) *genericregistry.Store {
	strategy := crdpolicy.NewStrategy(scheme)
	return &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.CRDPolicy{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.CRDPolicyList{} },
		DefaultQualifiedResource:  v1alpha1.CRDPolicies,
		SingularQualifiedResource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "crdpolicy"},
		CreateStrategy:            strategy, UpdateStrategy: strategy, DeleteStrategy: strategy, TableConvertor: strategy,
	}
}
