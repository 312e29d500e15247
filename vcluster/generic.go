// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/openapi"
	"github.com/berth-dev/berth/vcluster/requests"
	"github.com/berth-dev/berth/vcluster/storage"
	"github.com/berth-dev/berth/vcluster/tenancy"
)

// commonConfig returns the configuration that is the same for all control planes.
func commonConfig(
	run *genericoptions.ServerRunOptions, enabled *genericoptions.APIEnablementOptions,
) (*genericapiserver.Config, error) {
	c := genericapiserver.NewConfig(legacyscheme.Codecs)
	c.MergedResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	if err := run.ApplyTo(c); err != nil {
		return nil, err
	}
	c.EffectiveVersion = reportedVersion{c.EffectiveVersion}
	c.SecureServing = &genericapiserver.SecureServingInfo{Listener: newIdleListener(), DisableHTTP2: true}
	c.DisabledPostStartHooks.Insert(replacedHooks...)
	// They are about the process, and therefore about all of its spaces.
	c.EnableMetrics = false
	if err := enabled.ApplyTo(c, c.MergedResourceConfig, legacyscheme.Scheme); err != nil {
		return nil, err
	}
	openapi.Describe(c)
	c.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	return c, nil
}

// genericConfig returns what BuildGenericConfig of upstream's control plane returns, but without a port, a certificate,
// a connection to etcd, and audit.
func genericConfig(
	ctx context.Context, o options.CompletedOptions, loopback *rest.Config, store *storage.Store, gate *gate.Gate, tenant *tenancy.Tenancy,
) (*genericapiserver.Config, *ownedInformers, *serverstorage.DefaultStorageFactory, error) {
	c, err := commonConfig(o.GenericServerRunOptions, o.APIEnablement)
	if err != nil {
		return nil, nil, nil, err
	}
	c.LoopbackClientConfig = loopback
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make loopback client: %w", err)
	}
	factory := newInformers(client, store.Client.Client, store.Account, klog.FromContext(ctx))
	if err := o.Features.ApplyTo(c, client, factory); err != nil {
		return nil, nil, nil, err
	}
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = requests.BoundFields(c.LongRunningFunc, api)
		api = requests.AccountMemory(store.Account, c.LongRunningFunc, api)
		api = requests.CountWork(gate.Abort, c.RequestTimeout, c.LongRunningFunc, api)
		api = gate.EndLongRunning(c.LongRunningFunc, tenant.EndRevoked(c.LongRunningFunc, api))
		return requests.BoundSelectors(requests.BoundIdentities(genericapiserver.DefaultBuildHandlerChain(api, c)))
	}

	storage, err := storageFactory(c, o.Etcd)
	if err != nil {
		return nil, nil, nil, err
	}
	c.RESTOptionsGetter = store.Getter(o.Etcd.CreateRESTOptionsGetter(storage, nil))
	c.AddHealthChecks(store.HealthCheck())

	if err := o.Authentication.ApplyTo(ctx, &c.Authentication, nil, nil, c.OpenAPIConfig, c.OpenAPIV3Config,
		client, factory, c.APIServerID); err != nil {
		return nil, nil, nil, fmt.Errorf("set up authentication: %w", err)
	}
	c.Authentication.Authenticator = credentials.RememberCertificates(o.Authentication.ClientCert.CAContentProvider.VerifyOptions, c.Authentication.Authenticator)
	c.Authentication.Authenticator = credentials.RefuseFormerOwners(tenant.Source(), c.Authentication.Authenticator)
	c.Authentication.Authenticator = credentials.AcceptIdentities(tenant.Grants(), c.Authentication.Authenticator)
	c.Authorization.Authorizer, c.RuleResolver, _, err = controlplaneapiserver.BuildAuthorizer(
		ctx, o.CompletedOptions, nil, c.APIServerID, factory)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("set up authorization: %w", err)
	}
	if c.Authorization.Authorizer, c.RuleResolver, err = tenant.Authorize(factory, c.Authorization.Authorizer, c.RuleResolver); err != nil {
		return nil, nil, nil, fmt.Errorf("set up authorization: %w", err)
	}
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	return c, factory, storage, nil
}

func storageFactory(c *genericapiserver.Config, o *genericoptions.EtcdOptions) (*serverstorage.DefaultStorageFactory, error) {
	f := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(c.EffectiveVersion)
	f.APIResourceConfig = c.MergedResourceConfig
	f.DefaultResourceEncoding.SetEffectiveVersion(c.EffectiveVersion)
	storage, err := f.Complete(o).New()
	if err != nil {
		return nil, fmt.Errorf("set up storage: %w", err)
	}
	storage.StorageConfig.StorageObjectCountTracker = c.StorageObjectCountTracker
	return storage, nil
}
