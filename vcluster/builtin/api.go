// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	services "k8s.io/kubernetes/pkg/registry/core/service/storage"
	kuberoutes "k8s.io/kubernetes/pkg/routes"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/berth-dev/berth/vcluster/quantities"
)

// errShared means that something which is each space's own was used of the
// shared handlers.
var errShared = errors.New("internal error: this is each space's own")

// API is the built-in APIs' handlers and what discovery says of them. It is safe
// for concurrent use.
type API struct {
	generic   *genericapiserver.Config
	server    *genericapiserver.GenericAPIServer
	discovery *recorder
	// tenantCore is what the spaces of tenants serve of the core group.
	tenantCore *tenantCore

	registries map[schema.GroupVersionResource]Registry
}

// Registry is upstream's registry of a resource, and what is served in its place: the same if there is nothing to replace.
type Registry struct{ Upstream, Served rest.Storage }

// Registries returns those of all resources and subresources.
func (a *API) Registries() map[schema.GroupVersionResource]Registry { return a.registries }

// Config says what the handlers are made of: what is the same for all control
// planes of the process.
type Config struct {
	// Generic is a configuration that no server runs with: serializers, versions,
	// OpenAPI, resources. New takes it over.
	Generic *genericapiserver.Config
	// RESTOptions says how each resource is stored, but not where.
	RESTOptions generic.RESTOptionsGetter
	Storage     *serverstorage.DefaultStorageFactory
	// Core is upstream's configuration of the parts that are not generic; services
	// have any range of addresses.
	Core controlplane.Extra
	// Control is likewise, of the generic control plane's parts.
	Control controlplaneapiserver.Extra
}

// New makes the handlers. Config.Storage must reach a store; nothing is kept of
// it.
func New(c Config) (*API, error) {
	loopback := &restclient.Config{Host: "http://space.invalid", Transport: access{}, QPS: -1}
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	none := informers.NewSharedInformerFactory(client, 0)

	g := c.Generic
	g.LoopbackClientConfig = loopback
	g.RESTOptionsGetter = dispatch{c.RESTOptions}
	g.AdmissionControl = access{}
	g.Authorization.Authorizer = access{}
	g.RuleResolver = access{}
	g.Authentication.Authenticator = access{}
	g.SkipOpenAPIInstallation = true
	describeTenantQuotas(g.OpenAPIV3Config)
	recorder := &recorder{}
	g.AggregatedDiscoveryGroupManager = recorder

	config := &controlplane.Config{ControlPlane: controlplaneapiserver.Config{Generic: g, Extra: c.Control}, Extra: c.Core}
	config.ControlPlane.APIResourceConfigSource = c.Storage.APIResourceConfigSource
	config.ControlPlane.StorageFactory = c.Storage
	config.ControlPlane.VersionedInformers = none
	config.ControlPlane.ServiceAccountIssuer = noIssuer{}
	config.ControlPlane.ProxyTransport = &http.Transport{DialContext: noDial}
	config.KubeletClientConfig = kubeletclient.KubeletClientConfig{Port: 1} // never used: see own
	config.EndpointReconcilerConfig.Reconciler = reconcilers.NewNoneEndpointReconciler()

	completed := config.Complete()
	// Complete has put the loopback's token before the authenticator, which each
	// space does for itself.
	completed.ControlPlane.Generic.Authentication.Authenticator = access{}
	completed.ControlPlane.Generic.Authorization.Authorizer = access{}
	server, err := completed.ControlPlane.Generic.New("builtin", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	server.DiscoveryGroupManager = groupRecorder{recorder: recorder}
	providers, err := completed.StorageProviders(client)
	if err != nil {
		return nil, fmt.Errorf("make registries: %w", err)
	}
	allocators := &allocators{}
	defer allocators.destroy()
	registries := map[schema.GroupVersionResource]Registry{}
	for i, p := range providers {
		providers[i] = ownProvider{p, allocators, registries}
	}
	providers = append(providers, usageProvider{}, quotaProvider{}, accessProvider{})
	shared := &controlplaneapiserver.Server{
		GenericAPIServer:        server,
		APIResourceConfigSource: c.Storage.APIResourceConfigSource,
		RESTOptionsGetter:       g.RESTOptionsGetter,
	}
	if err := shared.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("install handlers: %w", err)
	}
	// Each space serves these itself; they are here to be described.
	kuberoutes.NewOpenIDMetadataServer(nil).Install(server.Handler.GoRestfulContainer)
	core, err := newTenantCore(server)
	if err != nil {
		return nil, err
	}
	return &API{generic: g, server: server, discovery: recorder, tenantCore: core, registries: registries}, nil
}

// ServeHTTP serves requests below /api and /apis, in the space of their context.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.server.Handler.GoRestfulContainer.Dispatch(w, r)
}

// OpenAPI serves the documents of the built-in APIs that everywhere has, versions 2 and 3. It makes
// them anew: call it once for each.
func (a *API) OpenAPI(everywhere Offers) http.Handler {
	m := mux.NewPathRecorderMux("builtin-openapi")
	handlers := restful.NewContainer()
	for _, ws := range a.server.Handler.GoRestfulContainer.RegisteredWebServices() {
		if everywhere.path(ws.RootPath()) {
			handlers.Add(ws)
		}
	}
	v2, v3 := a.generic.OpenAPIConfig, a.generic.OpenAPIV3Config
	if everywhere.Tenant {
		v2, v3 = withoutHidden(*v2, *v3)
	}
	routes.OpenAPI{Config: v2}.InstallV2(handlers, m)
	routes.OpenAPI{V3Config: v3}.InstallV3(handlers, m)
	return m
}

// allocators of addresses and ports are made with the shared registry of
// services. They are each space's own: those of the shared one end at once.
type allocators struct{ registries []rest.Storage }

func (a *allocators) destroy() {
	for _, r := range a.registries {
		r.Destroy()
	}
}

// ownProvider replaces registries that keep state: see own. Its handlers refuse quantities that take too long to parse.
type ownProvider struct {
	controlplaneapiserver.RESTStorageProvider
	allocators *allocators
	registries map[schema.GroupVersionResource]Registry
}

func (p ownProvider) NewRESTStorage(
	resources serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter,
) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(resources, options)
	if err != nil {
		return info, err
	}
	info.NegotiatedSerializer = quantities.Serializer{NegotiatedSerializer: info.NegotiatedSerializer, Scheme: info.Scheme}
	for version, storages := range info.VersionedResourcesStorageMap {
		upstream := maps.Clone(storages)
		for resource, s := range storages {
			if _, ok := s.(*services.REST); ok {
				p.allocators.registries = append(p.allocators.registries, s)
			}
			storages[resource] = own(schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: resource}, s)
		}
		boundErrors(p.GroupName(), storages)
		for resource, s := range storages {
			p.registries[schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: resource}] = Registry{upstream[resource], s}
		}
	}
	return info, nil
}

// noIssuer is there because upstream serves tokens only if there is an issuer.
// It is never asked: each space has its own registry of tokens.
type noIssuer struct{ serviceaccount.TokenGenerator }

func noDial(context.Context, string, string) (net.Conn, error) { return nil, errShared }
