// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/controller/endpoint"
)

// KeptEndpoints is a view for the controller of endpoints. Whenever that starts,
// it lists all endpoints and deletes those that have no service: after a restart of
// a cluster, which is seldom. In a space it starts with each first service and each
// wake, so it is shown only those that it made itself: what a tenant wrote by hand stays.
type KeptEndpoints struct{ coreinformers.Interface }

// Endpoints returns an informer whose lister lists those that the controller made.
func (v KeptEndpoints) Endpoints() coreinformers.TypedEndpointsInformer {
	return coreinformers.ToTypedEndpointsInformer(keptEndpointsInformer{v.Interface.Endpoints()})
}

type keptEndpointsInformer struct {
	coreinformers.EndpointsInformer
}

func (i keptEndpointsInformer) Lister() corelisters.EndpointsLister {
	return keptEndpointsLister{i.EndpointsInformer.Lister()}
}

type keptEndpointsLister struct{ corelisters.EndpointsLister }

func (l keptEndpointsLister) List(selector labels.Selector) ([]*corev1.Endpoints, error) { //nolint:staticcheck // the controller is of these
	all, err := l.EndpointsLister.List(selector)
	return slices.DeleteFunc(all, func(e *corev1.Endpoints) bool { //nolint:staticcheck // as above
		return e.Labels[endpoint.LabelManagedBy] != endpoint.ControllerName
	}), err
}
