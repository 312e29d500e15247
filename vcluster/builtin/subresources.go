// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	validatingpolicies "k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	storageversions "k8s.io/kubernetes/pkg/registry/apiserverinternal/storageversion"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/podcertificaterequest"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourcepoolstatusrequest"
	"k8s.io/kubernetes/pkg/registry/scheduling/podgroup"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storagemigration/storagemigration"
	"k8s.io/utils/clock"
)

// strategyOf returns the strategy of a subresource; main is that of its resource.
type strategyOf func(main rest.RESTUpdateStrategy) rest.RESTUpdateStrategy

// subresourceStrategies are those that upstream's registries of subresources keep in fields that are not exported.
func subresourceStrategies() map[schema.GroupResource]strategyOf {
	return map[schema.GroupResource]strategyOf{
		{Resource: "nodes/status"}:                  is(node.StatusStrategy),
		{Resource: "persistentvolumeclaims/status"}: is(persistentvolumeclaim.StatusStrategy),
		{Resource: "persistentvolumes/status"}:      is(persistentvolume.StatusStrategy),
		{Resource: "pods/ephemeralcontainers"}:      is(pod.EphemeralContainersStrategy),
		{Resource: "pods/resize"}:                   is(pod.ResizeStrategy),
		{Resource: "pods/status"}:                   is(pod.StatusStrategy),
		{Resource: "replicationcontrollers/status"}: is(replicationcontroller.StatusStrategy),
		{Resource: "resourcequotas/status"}:         is(resourcequota.StatusStrategy),
		{Resource: "services/status"}:               is(service.StatusStrategy),

		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies/status"}: by(validatingpolicies.NewStatusStrategy),

		{Group: "apps", Resource: "daemonsets/status"}:   is(daemonset.StatusStrategy),
		{Group: "apps", Resource: "deployments/status"}:  is(deployment.StatusStrategy),
		{Group: "apps", Resource: "replicasets/status"}:  is(replicaset.StatusStrategy),
		{Group: "apps", Resource: "statefulsets/status"}: is(statefulset.StatusStrategy),

		{Group: "autoscaling", Resource: "horizontalpodautoscalers/status"}: is(horizontalpodautoscaler.StatusStrategy),

		{Group: "batch", Resource: "cronjobs/status"}: is(cronjob.StatusStrategy),
		{Group: "batch", Resource: "jobs/status"}:     is(job.StatusStrategy),

		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests/approval"}: is(certificates.ApprovalStrategy),
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests/status"}:   is(certificates.StatusStrategy),
		{Group: "certificates.k8s.io", Resource: "podcertificaterequests/status"}: by(func(s *podcertificaterequest.Strategy) *podcertificaterequest.StatusStrategy {
			return podcertificaterequest.NewStatusStrategy(s, access{}, clock.RealClock{})
		}),

		{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas/status"}:                 is(flowschema.StatusStrategy),
		{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations/status"}: is(prioritylevelconfiguration.StatusStrategy),

		{Group: "internal.apiserver.k8s.io", Resource: "storageversions/status"}: is(storageversions.StatusStrategy),

		{Group: "networking.k8s.io", Resource: "ingresses/status"}:    is(ingress.StatusStrategy),
		{Group: "networking.k8s.io", Resource: "servicecidrs/status"}: is(servicecidr.StatusStrategy),

		{Group: "policy", Resource: "poddisruptionbudgets/status"}: is(poddisruptionbudget.StatusStrategy),

		{Group: "resource.k8s.io", Resource: "devicetaintrules/status"}:           is(devicetaintrule.StatusStrategy),
		{Group: "resource.k8s.io", Resource: "resourceclaims/status"}:             by(resourceclaim.NewStatusStrategy),
		{Group: "resource.k8s.io", Resource: "resourcepoolstatusrequests/status"}: is(resourcepoolstatusrequest.StatusStrategy),

		{Group: "scheduling.k8s.io", Resource: "podgroups/status"}: by(podgroup.NewStatusStrategy),

		{Group: "storage.k8s.io", Resource: "csinodes/status"}:          is(csinode.StatusStrategy),
		{Group: "storage.k8s.io", Resource: "volumeattachments/status"}: is(volumeattachment.StatusStrategy),

		{Group: "storagemigration.k8s.io", Resource: "storageversionmigrations/status"}: is(storagemigration.StatusStrategy),
	}
}

func is(s rest.RESTUpdateStrategy) strategyOf {
	return func(rest.RESTUpdateStrategy) rest.RESTUpdateStrategy { return s }
}

// by makes the strategy of that of the resource.
func by[Main any, Sub rest.RESTUpdateStrategy](newStrategy func(Main) Sub) strategyOf {
	return func(main rest.RESTUpdateStrategy) rest.RESTUpdateStrategy {
		if m, ok := main.(Main); ok {
			return newStrategy(m)
		}
		return nil
	}
}

// boundSubresource returns what serves a subresource in place of its registry.
func boundSubresource(resource string, storages map[string]rest.Storage, of strategyOf) rest.Storage {
	s := storages[resource]
	main, _, _ := strings.Cut(resource, "/")
	store := storeOf(storages[main])
	if store == nil {
		return s
	}
	boundStrategies(store)
	strategy := store.UpdateStrategy
	if bounded, ok := strategy.(boundedUpdate); ok {
		strategy = bounded.RESTUpdateStrategy
	}
	if strategy = of(strategy); strategy == nil {
		return s
	}
	u := newUpdates(store, strategy)
	u.create = resource == "validatingadmissionpolicies/status"
	switch s := s.(type) {
	case boundedStatus, boundedApproval, boundedPart, interface{ isOwn() }:
		return s
	case statusRegistry:
		return boundedStatus{s, u}
	case approvalRegistry:
		return boundedApproval{s, u}
	case partRegistry:
		return boundedPart{s, u}
	}
	return s
}

// updates are those of a subresource.
type updates struct {
	store *genericregistry.Store
	// create says that an apply may create the object, as upstream's registry of one kind lets it.
	create bool
}

// newUpdates copies the resource's store, as upstream does for a subresource: before hooks are added to it, except for what
// happens after a deletion.
func newUpdates(store *genericregistry.Store, strategy rest.RESTUpdateStrategy) updates {
	own := *store
	own.Decorator, own.BeginCreate, own.BeginUpdate = nil, nil, nil
	own.UpdateStrategy = boundedUpdate{strategy}
	return updates{store: &own}
}

func (u updates) update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return u.store.Update(ctx, name, info, create, update, force && u.create, o)
}

type (
	partRegistry interface {
		rest.Storage
		rest.Patcher
	}
	approvalRegistry interface {
		partRegistry
		rest.ResetFieldsStrategy
	}
	boundedPart struct {
		partRegistry
		updates
	}
	boundedApproval struct {
		approvalRegistry
		updates
	}
	boundedStatus struct {
		statusRegistry
		updates
	}
)

func (r boundedPart) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.update(ctx, name, info, create, update, force, o)
}

func (r boundedApproval) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.update(ctx, name, info, create, update, force, o)
}

func (r boundedStatus) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.update(ctx, name, info, create, update, force, o)
}
