// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the objects in this package.
var GroupVersion = schema.GroupVersion{Group: "berth.dev", Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion, by the name that generated code has for it.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupVersion.Group, Version: GroupVersion.Version}

// Resource returns the group and resource of a plural name, such as spaces, for errors.
func Resource(plural string) schema.GroupResource {
	return GroupVersion.WithResource(plural).GroupResource()
}

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Space{}, &SpaceList{}, &Tenant{}, &TenantList{}, &TenantOwner{}, &TenantOwnerList{}, &BerthConfiguration{}, &BerthConfigurationList{},
		&Publication{}, &PublicationList{}, &PublishedObject{}, &PublishedObjectList{}, &SharedObject{}, &SharedObjectList{},
		&QuotaLedger{}, &QuotaLedgerList{}, &SystemRole{}, &SystemRoleList{}, &CRDShare{}, &CRDShareList{}, &ResourceSync{}, &ResourceSyncList{},
		&Shard{}, &ShardList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
