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

// frontProxyName is the name by which a space's API server authenticates to the servers that extend it, as with
// kubeadm.
const frontProxyName = "front-proxy-client"

// publishFrontProxy makes upstream publish, in the ConfigMap kube-system/extension-apiserver-authentication, whose user
// headers extension servers may trust. The API server itself trusts no such headers (A6).
func publishFrontProxy(published *clusterauthenticationtrust.ClusterAuthenticationInfo, ca *pki.CA) {
	published.RequestHeaderCA = credentials.ClientCA{CA: ca}
	published.RequestHeaderAllowedNames = headerrequest.StaticStringSlice{frontProxyName}
	published.RequestHeaderUsernameHeaders = headerrequest.StaticStringSlice{"X-Remote-User"}
	published.RequestHeaderUIDHeaders = headerrequest.StaticStringSlice{"X-Remote-Uid"}
	published.RequestHeaderGroupHeaders = headerrequest.StaticStringSlice{"X-Remote-Group"}
	published.RequestHeaderExtraHeaderPrefixes = headerrequest.StaticStringSlice{"X-Remote-Extra-"}
}

// aggregateBy replaces upstream's aggregator for API services that pods serve. Upstream's then connects to nothing, and
// gets no data from them.
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

// aggregationOf returns what the API services that pods serve need of a built server.
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
	// The server starts the informers that are requested before it runs.
	c.Services.Informer()
	c.Slices.Informer()
	return c, nil
}
