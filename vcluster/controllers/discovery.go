// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// controllerClients makes the clients of controllers. Those of upstream's that
// follow every resource there is, the garbage collector and the one of quotas,
// learn of resources by its discovery, which lacks those that pods serve: what
// they follow they keep, in memory that spaces share, and a tenant's server
// would never come to an end.
type controllerClients struct {
	clientbuilder.SimpleControllerClientBuilder
	aggregated func(groupVersion string) bool
}

// DiscoveryClient is of [clientbuilder.ControllerClientBuilder].
func (c controllerClients) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	all, err := c.SimpleControllerClientBuilder.DiscoveryClient(name)
	if err != nil {
		return nil, err
	}
	return ownResources{all, c.aggregated}, nil
}

// ownResources is discovery whose preferred resources are the API server's own.
type ownResources struct {
	discovery.DiscoveryInterface
	aggregated func(groupVersion string) bool
}

func (o ownResources) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	all, err := o.DiscoveryInterface.ServerPreferredResources()
	return o.own(all), err
}

func (o ownResources) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	all, err := o.DiscoveryInterface.ServerPreferredNamespacedResources()
	return o.own(all), err
}

func (o ownResources) own(all []*metav1.APIResourceList) []*metav1.APIResourceList {
	return slices.DeleteFunc(all, func(l *metav1.APIResourceList) bool { return o.aggregated(l.GroupVersion) })
}
