// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	apistorage "k8s.io/apiserver/pkg/storage"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/vcluster/aggregation"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/invalid"
	"github.com/berth-dev/berth/vcluster/openapi"
	"github.com/berth-dev/berth/vcluster/overlay"
	"github.com/berth-dev/berth/vcluster/plugins"
	"github.com/berth-dev/berth/vcluster/podaccess"
	"github.com/berth-dev/berth/vcluster/requests"
	"github.com/berth-dev/berth/vcluster/storage"
	"github.com/berth-dev/berth/vcluster/tenancy"
)

// chain is a built API server that does not run yet: the aggregator, which delegates to the core, which delegates to
// API extensions.
type chain struct {
	server    *aggregatorapiserver.APIAggregator
	crds      *watchedCRDs
	own       *registries
	documents *openapi.SpaceDocuments
	// aggregated are the APIs that pods serve by aggregation.
	aggregated  *aggregation.Services
	aggregation aggregation.Config
	informers   *ownedInformers
	admission   *gate.Latch
	definitions *invalid.CustomResources
	shared      *overlay.Space
	// space is what the shared handlers need to know about this space.
	space *builtin.Space
}

func newChain(
	ctx context.Context, c Config, id credentials.Set, o options.CompletedOptions, loopback *rest.Config, store *storage.Store, entrance *gate.Gate, hooks *hooks,
	tenant *tenancy.Tenancy,
) (*chain, error) {
	generic, factory, resources, err := genericConfig(ctx, o, loopback, store, entrance, tenant)
	if err != nil {
		return nil, err
	}
	traceTo(c.Traces, generic)
	dial := c.Dial
	if c.Pods != nil {
		dial = podaccess.Dialer{Pods: c.Pods, List: factory.Core().V1().Pods().Lister()}.DialContext
		// Services are reached by their endpoints, because pods can be dialed, and cluster IPs can't.
		o.EnableAggregatorRouting = true
	}
	validations := requests.NewValidations()
	plugins.BoundConditions(o.Admission, validations, factory)
	plugins.WebhooksReachBy(o.Admission, dial)
	plugins.BoundPolicies(o.Admission, validations, factory)
	plugins.BoundLimitRanges(o.Admission, factory)
	plugins.BoundPodSecurity(o.Admission)
	plugins.PassKeeper(o.Admission)
	tenant.HoldForLimits(o.Admission, factory)
	if err := tenant.Connect(factory, loopback); err != nil {
		return nil, err
	}
	rules := plugins.NewRuleWork(generic.RuleResolver, factory)
	generic.RuleResolver = rules
	core, services, initializers, err := app.CreateKubeAPIServerConfig(o, generic, factory, resources)
	if err != nil {
		return nil, fmt.Errorf("configure API server: %w", err)
	}
	podaccess.ReachBy(core, dial)
	publishFrontProxy(&core.ControlPlane.ClusterAuthenticationInfo, id.FrontProxy)
	admission, definitions := gate.NewLatch(), &invalid.CustomResources{}
	control := &plugins.Chain{
		Next: generic.AdmissionControl, Calls: admission, Space: c.HiddenNodes, Validations: validations, Rules: rules, Definitions: definitions,
	}
	if store.Shared != nil {
		control.CheckShared = store.Shared.Check
	}
	generic.AdmissionControl = control
	if c.KubernetesServiceIP != nil {
		core.APIServerServiceIP = c.KubernetesServiceIP
	}
	if err := hooks.add(generic); err != nil {
		return nil, err
	}

	// All servers of the chain serve the shared documents.
	generic.SkipOpenAPIInstallation = true
	upstream := webhook.NewDefaultAuthenticationInfoResolverWrapper(
		core.ControlPlane.ProxyTransport, nil, generic.LoopbackClientConfig, generic.TracerProvider)
	auth := func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		own := plugins.WebhooksBy(dial, plugins.MaxConverted, c.Account)(upstream(r))
		if c.Definitions == nil {
			return own
		}
		return plugins.NewSharedConversions(ctx, c.Definitions, c.Account).Wrap(own)
	}
	extensions, err := controlplaneapiserver.CreateAPIExtensionsConfig(
		*generic, factory, initializers, o.CompletedOptions, o.MasterCount, services, auth)
	if err != nil {
		return nil, fmt.Errorf("configure API extensions: %w", err)
	}
	extensions.GenericConfig.RESTOptionsGetter = store.Getter(extensions.GenericConfig.RESTOptionsGetter)
	extensions.ExtraConfig.CRDRESTOptionsGetter = store.CustomResources(extensions.ExtraConfig.CRDRESTOptionsGetter)

	aggregator, err := controlplaneapiserver.CreateAggregatorConfig(
		*generic, o.CompletedOptions, factory, services, core.ControlPlane.ProxyTransport.Clone(), nil, initializers)
	if err != nil {
		return nil, fmt.Errorf("configure API aggregation: %w", err)
	}
	cost := &requests.DiscoveryCost{}
	aggregated := aggregateBy(aggregator, cost)
	aggregator.GenericConfig.RESTOptionsGetter = store.Getter(aggregator.GenericConfig.RESTOptionsGetter)
	// For metrics, upstream keeps the storage of the last server in a package variable, which would keep a stopped
	// space in memory.
	etcdmetrics.SetStorageMonitorGetter(func() ([]etcdmetrics.Monitor, error) { return nil, nil })

	shared, err := builtinAPI()
	if err != nil {
		return nil, fmt.Errorf("build shared APIs: %w", err)
	}
	built, err := assemble(core.Complete(), extensions.Complete(), aggregator.Complete(), shared, c, store.Kine.Quiet, store.Shared)
	if err != nil {
		return nil, fmt.Errorf("build API server: %w", err)
	}
	built.informers, built.admission = factory, admission
	definitions.Lister = built.crds.Lister()
	built.definitions = definitions
	built.aggregated = aggregated
	tenant.ListGroups(built.crds.Lister())
	cost.CRDs = built.crds.Lister()
	built.documents.Aggregated = aggregated.OpenAPI
	if built.aggregation, err = aggregationOf(built.server, loopback, factory, generic.AggregatedDiscoveryGroupManager); err != nil {
		return nil, err
	}
	built.aggregation.Resolve, built.aggregation.Dial = services.ResolveEndpoint, dial
	built.aggregation.Certificate = id.FrontProxy.Calling(frontProxyName).Get
	hooks.watch(built.server.GenericAPIServer, built.crds)
	identified, err := rest.TransportFor(loopback)
	if err != nil {
		return nil, fmt.Errorf("make loopback: %w", err)
	}
	built.space = &builtin.Space{
		Admission:     generic.AdmissionControl,
		Authorizer:    generic.Authorization.Authorizer,
		RuleResolver:  generic.RuleResolver,
		Authenticator: generic.Authentication.Authenticator,
		Loopback:      identified,
		NewStorage: func(r builtin.Resource) (apistorage.Interface, error) {
			opened, err := store.Open(r)
			if err != nil {
				return nil, err
			}
			return store.Lists.Add(opened, r), nil
		},
		Own: built.own.get,
	}
	if c.Usage != nil {
		built.space.Usage = podaccess.Metrics{Usage: c.Usage, Pods: factory.Core().V1().Pods().Lister()}
	}
	built.space.TenantQuota = c.TenantQuota
	if store.Shared != nil {
		built.space.CRDMatches = store.Shared.Matches
	}
	return built, nil
}

// handler returns the handler of the whole API.
func (c *chain) handler() http.Handler {
	next := requests.EndStalled(clock.RealClock{}, c.server.GenericAPIServer.Handler)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.shared != nil {
			r = r.WithContext(c.shared.WithSwitchCount(r))
		}
		next.ServeHTTP(w, r.WithContext(builtin.WithSpace(c.definitions.Begin(r), c.space)))
	})
}

// assemble is upstream's CreateServerChain, with shared built-in APIs, and with a wrapper that observes the informer of
// CRDs.
func assemble(
	core controlplane.CompletedConfig, extensions apiextensionsapiserver.CompletedConfig, aggregator aggregatorapiserver.CompletedConfig,
	shared *sharedAPI, config Config, quiet func() time.Duration,
	definitions *overlay.Space,
) (*chain, error) {
	notFound := notfoundhandler.New(core.ControlPlane.Generic.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	extensionsServer, err := extensions.New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, err
	}
	coreServer, own, err := newCore(core, extensionsServer.GenericAPIServer, config, quiet)
	if err != nil {
		return nil, err
	}
	crds := extensionsServer.Informers.Apiextensions().V1().CustomResourceDefinitions()
	if definitions != nil {
		if err := definitions.Follow(crds.Informer()); err != nil {
			return nil, err
		}
	}
	c := &chain{crds: watchCRDs(crds), own: own, shared: definitions}
	offers := builtin.Offers{Usage: config.Usage != nil, TenantQuota: config.TenantQuota != nil, Tenant: config.Access != nil}
	served := shared.Install(coreServer, core.ControlPlane.Generic.DiscoveryAddresses, offers)
	c.server, err = controlplaneapiserver.CreateAggregatorServer(
		aggregator, served, c.crds, true, apiPriorities())
	if err != nil {
		return nil, err
	}
	c.documents = shared.documentsOf(offers).Add(
		c.server.GenericAPIServer, extensionsServer.GenericAPIServer, aggregator.GenericConfig.Config, crds, config.Account)
	return c, nil
}
