// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"

	"github.com/berth-dev/berth/vcluster/aggregation"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/podaccess"
	"github.com/berth-dev/berth/vcluster/requests"
)

// frontProxyName is who a space's API server is to the servers that extend it, as
// kubeadm has it.
const frontProxyName = "front-proxy-client"

// publishFrontProxy has upstream tell the servers that extend the API, by the
// ConfigMap kube-system/extension-apiserver-authentication, whom to believe when
// it says who asks. The API server itself believes nobody (A6).
func publishFrontProxy(published *clusterauthenticationtrust.ClusterAuthenticationInfo, ca *pki.CA) {
	published.RequestHeaderCA = credentials.ClientCA{CA: ca}
	published.RequestHeaderAllowedNames = headerrequest.StaticStringSlice{frontProxyName}
	published.RequestHeaderUsernameHeaders = headerrequest.StaticStringSlice{"X-Remote-User"}
	published.RequestHeaderUIDHeaders = headerrequest.StaticStringSlice{"X-Remote-Uid"}
	published.RequestHeaderGroupHeaders = headerrequest.StaticStringSlice{"X-Remote-Group"}
	published.RequestHeaderExtraHeaderPrefixes = headerrequest.StaticStringSlice{"X-Remote-Extra-"}
}

// aggregateBy takes the API services that pods serve from upstream's aggregator,
// which then reaches nothing, and is told of nothing that they offer.
func aggregateBy(c *aggregatorapiserver.Config, cost *requests.DiscoveryCost) *aggregation.Services {
	services := &aggregation.Services{}
	c.ExtraConfig.ProxyTransport.DialContext = podaccess.RefuseDial
	c.ExtraConfig.DisableRemoteAvailableConditionController = true
	c.GenericConfig.AggregatedDiscoveryGroupManager = aggregation.ExceptAggregated(c.GenericConfig.AggregatedDiscoveryGroupManager)
	build := c.GenericConfig.BuildHandlerChainFunc
	c.GenericConfig.BuildHandlerChainFunc = func(api http.Handler, g *genericapiserver.Config) http.Handler {
		return build(cost.Handler(services.Handler(api)), g)
	}
	return services
}

// aggregationOf is what of a built server the API services that pods serve need.
func aggregationOf(
	server *aggregatorapiserver.APIAggregator, loopback *rest.Config, factory informers.SharedInformerFactory, discovery aggregated.ResourceManager,
) (aggregation.Config, error) {
	client, err := apiregistration.NewForConfig(loopback)
	if err != nil {
		return aggregation.Config{}, fmt.Errorf("make client of API services: %w", err)
	}
	c := aggregation.Config{
		APIServices: server.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		Services:    factory.Core().V1().Services(),
		Slices:      factory.Discovery().V1().EndpointSlices(),
		Client:      client,
		Discovery:   discovery.WithSource(aggregated.AggregatorSource),
	}
	// The server starts those that are asked for before it runs.
	c.Services.Informer()
	c.Slices.Informer()
	return c, nil
}
