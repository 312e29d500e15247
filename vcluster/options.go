// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/nodedeclaredfeatures"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/plugins"
	"github.com/berth-dev/berth/vcluster/storage"
)

// maxTokenLife is the maximum lifetime of requested service-account tokens; longer requests are shortened. Pods request
// one hour for the tokens that they mount, but may get this, for clients that read a token only once. The syncer
// replaces these tokens after about 50 minutes.
const maxTokenLife = pki.MaxClientLifetime

// newOptions returns the options of c's API server: upstream's defaults with the following changes.
func newOptions(ctx context.Context, c Config, id credentials.Set, store *storage.Store) (options.CompletedOptions, error) {
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return options.CompletedOptions{}, err
	}
	o := commonOptions(c.Account)
	o.GenericServerRunOptions.ExternalHost = endpoint.Host
	o.ServiceClusterIPRanges = c.ServiceCIDR
	store.Configure(&o.Etcd.StorageConfig, c.Name)
	authenticate(o, c.Name, id)
	o.Authorization.Modes = []string{"RBAC"}
	if err := admit(o.Admission, c); err != nil {
		return options.CompletedOptions{}, err
	}

	completed, err := o.Complete(ctx)
	if err != nil {
		return options.CompletedOptions{}, fmt.Errorf("complete API server options: %w", err)
	}
	// If this were set earlier, upstream would warn at each start that the tokens of pods may live longer, which they
	// may not: see authenticate.
	completed.ServiceAccountTokenMaxExpiration = maxTokenLife
	return completed, nil
}

// commonOptions returns the options that are the same for all API servers.
func commonOptions(account *bounds.Account) *options.ServerRunOptions {
	o := options.NewServerRunOptions()
	o.Admission.GenericAdmission.Plugins = plugins.New(account)
	// By default, upstream reads this machine's interfaces and name (N1).
	o.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	o.GenericServerRunOptions.ExternalHost = "space.invalid"
	o.GenericServerRunOptions.ShutdownDelayDuration = 0
	// No port is bound, and no certificate is created for it.
	o.SecureServing.BindPort = 0
	o.SecureServing.Listener = nil
	o.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	// This is process-wide, and the first value is used. In a space, admission rejects privileged pods (M4).
	o.AllowPrivileged = true
	o.EnableLogsHandler = false

	o.Features.EnableProfiling = false
	o.Features.EnableContentionProfiling = false
	// gateway.Limiter limits requests, for all spaces of a process.
	o.Features.EnablePriorityAndFairness = false

	o.Etcd.EnableWatchCache = false
	o.Etcd.SkipHealthEndpoints = true
	storage := &o.Etcd.StorageConfig
	storage.Transport.TracerProvider = noop.NewTracerProvider()
	// A store compacts itself.
	storage.CompactionInterval = 0
	// Polling for metrics would keep an idle space busy, and nobody reads them.
	storage.CountMetricPollPeriod = 0
	storage.DBMetricPollInterval = 0
	return o
}

// authenticate accepts client certificates of the space's CA, the space's service-account tokens, and anonymous
// requests, for which RBAC allows almost nothing. Everything else that upstream supports is off, above all request
// headers (A6).
func authenticate(o *options.ServerRunOptions, space string, id credentials.Set) {
	a := kubeoptions.NewBuiltInAuthenticationOptions().
		WithAnonymous().
		WithClientCert().
		WithServiceAccounts().
		WithRequestHeader() // upstream reads it even if it is off, which it is without a CA
	a.ClientCert.CAContentProvider = credentials.ClientCA{CA: id.CA}
	// The first one issues tokens. Tokens of the others are accepted, and all are audiences of the API.
	a.ServiceAccounts.Issuers = []string{pki.Issuer(space), credentials.SharedIssuer}
	a.ServiceAccounts.ExternalPublicKeysGetter = id.TokenKeys
	a.ServiceAccounts.MaxExtendedExpiration = maxTokenLife
	// The keys have the address of the issuer, so pods that know its name and CA can read them.
	a.ServiceAccounts.JWKSURI = pki.Issuer(space) + serviceaccount.JWKSPath
	o.Authentication = a
	o.ServiceAccountSigningKeyFile = id.ServiceAccountKey
}

// admit adds Berth's plugins to upstream's, before ResourceQuota, which must see only what the others accept.
func admit(o *kubeoptions.AdmissionOptions, c Config) error {
	g := o.GenericAdmission
	known := g.Plugins.Registered()
	names := make([]string, 0, len(c.Admission))
	for _, a := range c.Admission {
		// Upstream ends the process if a name is registered twice.
		if a.Name == "" || a.New == nil || slices.Contains(known, a.Name) || slices.Contains(names, a.Name) {
			return fmt.Errorf("add admission plugin %q: it has no name, no constructor, or the name of another", a.Name)
		}
		g.Plugins.Register(a.Name, func(io.Reader) (admission.Interface, error) { return a.New() })
		names = append(names, a.Name)
	}
	if c.HiddenNodes {
		// These plugins read a pod's node when the pod is resized. The host checks that.
		g.DisablePlugins = append(g.DisablePlugins, podresize.PluginName, nodedeclaredfeatures.PluginName)
	}
	order := slices.Clone(g.RecommendedPluginOrder)
	quota := slices.Index(order, resourcequota.PluginName)
	if quota < 0 {
		return fmt.Errorf("add admission plugins: upstream's order lacks %s", resourcequota.PluginName)
	}
	g.RecommendedPluginOrder = slices.Insert(order, quota, names...)
	return nil
}
