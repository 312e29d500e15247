// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/tenantaccess"
)

const accessGroup = "access.berth.dev"

// TenantAccessPrefix is the prefix of the keys of TenantAccess objects in a store. Their values are JSON.
const TenantAccessPrefix = "/registry/" + tenantAccessPath + "/"

// tenantAccessPath is that of a custom resource of the group.
const tenantAccessPath = "access.berth.dev/tenantaccesses"

// accessProvider serves TenantAccess objects (Z5) and the CRDPolicy (C4), which are in the store of each space, as upstream serves its
// own: a space needs nothing for them, where a CustomResourceDefinition would cost each one handlers, a schema, and a watch. It also
// serves CRDMatch objects, which are stored nowhere.
type accessProvider struct{}

func (accessProvider) GroupName() string { return v1alpha1.GroupVersion.Group }

func (accessProvider) NewRESTStorage(_ serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	served := map[string]rest.Storage{}
	for path, store := range map[string]*genericregistry.Store{tenantAccessPath: tenantAccesses(scheme), crdPolicyPath: crdPolicies(scheme)} {
		if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: storedAs{options, codecs.LegacyCodec(v1alpha1.GroupVersion), path}}); err != nil {
			return genericapiserver.APIGroupInfo{}, fmt.Errorf("make the registry of %s: %w", store.DefaultQualifiedResource, err)
		}
		boundStrategies(store)
		served[store.DefaultQualifiedResource.Resource] = store
	}
	served[v1alpha1.CRDMatches.Resource] = crdMatches{}
	info := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupVersion.Group, scheme, metav1.ParameterCodec, codecs)
	info.NegotiatedSerializer = withoutProtobuf{info.NegotiatedSerializer}
	info.VersionedResourcesStorageMap[v1alpha1.GroupVersion.Version] = served
	return info, nil
}

func tenantAccesses(scheme *runtime.Scheme) *genericregistry.Store {
	strategy := tenantaccess.NewStrategy(scheme)
	return &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &v1alpha1.TenantAccess{} },
		NewListFunc:               func() runtime.Object { return &v1alpha1.TenantAccessList{} },
		DefaultQualifiedResource:  v1alpha1.TenantAccesses,
		SingularQualifiedResource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "tenantaccess"},
		CreateStrategy:            strategy, UpdateStrategy: strategy, DeleteStrategy: strategy, TableConvertor: strategy,
	}
}

// storedAs says how objects of the group are stored, which upstream's options don't know: as another resource, but for the codec and the
// prefix.
type storedAs struct {
	next  generic.RESTOptionsGetter
	codec runtime.Codec
	path  string
}

// GetRESTOptions implements [generic.RESTOptionsGetter].
func (s storedAs) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	options, err := s.next.GetRESTOptions(schema.GroupResource{Resource: "configmaps"}, nil)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec, config.EncodeVersioner, config.GroupResource = s.codec, v1alpha1.GroupVersion, resource
	options.StorageConfig, options.ResourcePrefix = &config, s.path
	return options, nil
}
