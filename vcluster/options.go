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

	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
	"github.com/berth-dev/berth/vcluster/plugins"
	"github.com/berth-dev/berth/vcluster/storage"
)

// maxTokenLife is the longest that a service-account token lives that was requested: one that is asked for longer is
// shortened. Those that pods mount are asked for an hour, and may live for this long, for clients that read a token
// once; the syncer replaces them after some 50 minutes.
const maxTokenLife = pki.MaxClientLifetime

// newOptions returns the options of c's API server: upstream's defaults, but for
// what follows.
func newOptions(ctx context.Context, c Config, id credentials.Set, store *storage.Store) (options.CompletedOptions, error) {
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return options.CompletedOptions{}, err
	}
	o := commonOptions()
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
	// Set before, upstream would warn at each start that the tokens of pods may live longer, which they may not: see
	// authenticate.
	completed.ServiceAccountTokenMaxExpiration = maxTokenLife
	return completed, nil
}

// commonOptions are those that are the same for all API servers.
func commonOptions() *options.ServerRunOptions {
	o := options.NewServerRunOptions()
	o.Admission.GenericAdmission.Plugins = plugins.New()
	// Left alone, upstream looks at this machine's interfaces and name (N1).
	o.GenericServerRunOptions.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
	o.GenericServerRunOptions.ExternalHost = "space.invalid"
	o.GenericServerRunOptions.ShutdownDelayDuration = 0
	// No port is bound, and no certificate made for it.
	o.SecureServing.BindPort = 0
	o.SecureServing.Listener = nil
	o.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	// Process-wide, and the first wins. A space refuses by admission (M4).
	o.AllowPrivileged = true
	o.EnableLogsHandler = false

	o.Features.EnableProfiling = false
	o.Features.EnableContentionProfiling = false
	// gateway.Limiter limits requests, across a process's spaces.
	o.Features.EnablePriorityAndFairness = false

	o.Etcd.EnableWatchCache = false
	o.Etcd.SkipHealthEndpoints = true
	storage := &o.Etcd.StorageConfig
	storage.Transport.TracerProvider = noop.NewTracerProvider()
	// A store compacts itself.
	storage.CompactionInterval = 0
	// Polling for metrics that nobody scrapes would keep an idle space busy.
	storage.CountMetricPollPeriod = 0
	storage.DBMetricPollInterval = 0
	return o
}

// authenticate lets in client certificates of the space's CA, the
// space's service-account tokens, and anonymous requests, which RBAC gives next
// to nothing. Everything else that upstream offers is off, request headers
// above all (A6).
func authenticate(o *options.ServerRunOptions, space string, id credentials.Set) {
	a := kubeoptions.NewBuiltInAuthenticationOptions().
		WithAnonymous().
		WithClientCert().
		WithServiceAccounts().
		WithRequestHeader() // upstream reads it even if it is off, which it is without a CA
	a.ClientCert.CAContentProvider = credentials.ClientCA{CA: id.CA}
	// The first issues; the others are accepted, and all are audiences of the API.
	a.ServiceAccounts.Issuers = []string{pki.Issuer(space), credentials.SharedIssuer}
	a.ServiceAccounts.ExternalPublicKeysGetter = id.TokenKeys
	a.ServiceAccounts.MaxExtendedExpiration = maxTokenLife
	// Where the issuer is: pods that know its name and its CA find the keys by the same.
	a.ServiceAccounts.JWKSURI = pki.Issuer(space) + serviceaccount.JWKSPath
	o.Authentication = a
	o.ServiceAccountSigningKeyFile = id.ServiceAccountKey
}

// admit adds Berth's plugins to upstream's, before ResourceQuota, which must
// see only what the others let pass.
func admit(o *kubeoptions.AdmissionOptions, c Config) error {
	g := o.GenericAdmission
	known := g.Plugins.Registered()
	names := make([]string, 0, len(c.Admission))
	for _, a := range c.Admission {
		// Upstream ends the process when a name is registered twice.
		if a.Name == "" || a.New == nil || slices.Contains(known, a.Name) || slices.Contains(names, a.Name) {
			return fmt.Errorf("add admission plugin %q: it has no name, no constructor, or the name of another", a.Name)
		}
		g.Plugins.Register(a.Name, func(io.Reader) (admission.Interface, error) { return a.New() })
		names = append(names, a.Name)
	}
	if c.HiddenNodes {
		// They look at a pod's node when the pod is resized. The host does.
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
