// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/defaults"
	"github.com/berth-dev/berth/operator/policies"
	"github.com/berth-dev/berth/operator/publication"
	"github.com/berth-dev/berth/operator/shards"
	"github.com/berth-dev/berth/operator/share"
	"github.com/berth-dev/berth/operator/tenant"
)

const (
	// leaseName is the name of the Lease that operators share.
	leaseName = "berth-operator"
	// definedPause is between two looks whether the host serves the definitions.
	definedPause = 500 * time.Millisecond
	// stopTimeout limits how long reconciles in progress may take at the end.
	stopTimeout = 10 * time.Second
	// namespaceFile has the namespace of the pod in which the process runs.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Operator reconciles tenants. Run may be called once.
type Operator struct {
	config Config
}

// New returns an operator.
func New(c Config) *Operator {
	c.complete()
	return &Operator{config: c}
}

// Run waits until the host has the definitions of Berth's objects, installs the policies if it may, and reconciles until ctx ends or
// the Lease is lost.
func (o *Operator) Run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register types: %w", err)
	}
	host := rest.CopyConfig(o.config.Host)
	host.QPS = -1                                      // the host's API priority and fairness limits the requests
	host.ContentType, host.AcceptContentTypes = "", "" // Berth's objects have no protobuf form
	if err := o.prepare(ctx, host, scheme); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	m, err := o.manager(host, scheme)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run operator: %w", err)
	}
	return nil
}

// prepare waits for the definitions, and installs the policies.
func (o *Operator) prepare(ctx context.Context, host *rest.Config, scheme *runtime.Scheme) error {
	c, err := client.New(host, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client of the host: %w", err)
	}
	logged := "" // each cause is logged once
	err = wait.PollUntilContextCancel(ctx, definedPause, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{
			&v1alpha1.TenantList{}, &v1alpha1.TenantOwnerList{}, &v1alpha1.BerthConfigurationList{}, &v1alpha1.SpaceList{}, &v1alpha1.PublicationList{}, &v1alpha1.PublishedObjectList{},
			&v1alpha1.SharedObjectList{}, &v1alpha1.QuotaLedgerList{}, &v1alpha1.ShardList{}, &coordinationv1.LeaseList{},
		} {
			namespace := client.InNamespace("")
			switch list.(type) {
			case *v1alpha1.ShardList, *coordinationv1.LeaseList:
				namespace = client.InNamespace(o.config.ShardNamespace)
			}
			err := c.List(ctx, list, client.Limit(1), namespace)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				if logged != err.Error() {
					o.config.Logger.Info("Waiting for the definitions of Berth's objects; install those of the chart, or start a platform that may install them", "cause", err.Error())
				}
				logged = err.Error()
				return false, nil
			}
			if err != nil && ctx.Err() == nil {
				if logged != err.Error() {
					o.config.Logger.Error(err, "Could not read from the host; trying again")
				}
				logged = err.Error()
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the definitions of Berth's objects: %w", err)
	}
	if err := policies.Apply(ctx, c); apierrors.IsForbidden(err) {
		o.config.Logger.Info("The operator may not write the policies for tenants; install those of the chart", "cause", err.Error())
	} else if err != nil {
		return err
	}
	return nil
}

func (o *Operator) manager(host *rest.Config, scheme *runtime.Scheme) (manager.Manager, error) {
	strip := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	cached := map[client.Object]cache.ByObject{ // Spaces keep them: they say who set what
		&v1alpha1.Tenant{}: strip, &v1alpha1.TenantOwner{}: strip, &v1alpha1.BerthConfiguration{}: strip,
		&v1alpha1.Publication{}: strip, &v1alpha1.PublishedObject{}: strip,
		&v1alpha1.SharedObject{}: {Transform: share.Strip}, &v1alpha1.QuotaLedger{}: {Transform: tenant.WithoutShares},
	}
	maps.Copy(cached, shards.Cached(o.config.ShardNamespace))
	m, err := manager.New(host, manager.Options{
		Scheme: scheme, Logger: o.config.Logger,
		NewClient:      o.config.NewClient,
		Cache:          cache.Options{ByObject: cached},
		LeaderElection: o.config.LeaderElection, LeaderElectionID: leaseName, LeaderElectionNamespace: o.config.LeaseNamespace,
		LeaderElectionReleaseOnCancel: true, // what is still written after that fails or changes nothing: all writes name what they change
		Metrics:                       o.metrics(),
		GracefulShutdownTimeout:       ptr.To(stopTimeout),
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)}, // several may run in one process, one after the other
	})
	if err != nil {
		return nil, fmt.Errorf("make operator: %w", err)
	}
	for _, set := range []func(manager.Manager) error{
		tenant.SetUp,
		tenant.SetUpMetrics,
		tenant.SetUpLeftovers,
		publication.SetUp,
		share.SetUp,
		shards.SetUp,
		defaults.Defaults{PlatformName: o.config.PlatformName, Tenant: o.config.DefaultTenant}.SetUp,
	} {
		if err := set(m); err != nil {
			return nil, fmt.Errorf("set up operator: %w", err)
		}
	}
	return m, nil
}

// metrics serves metrics and health.
func (o *Operator) metrics() metricsserver.Options {
	if o.config.MetricsListen == "" {
		return metricsserver.Options{BindAddress: "0"}
	}
	healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return metricsserver.Options{
		BindAddress: o.config.MetricsListen, ExtraHandlers: map[string]http.Handler{"/livez": healthy, "/readyz": healthy},
	}
}

// podNamespace returns the namespace of this pod.
func podNamespace() string {
	if text, err := os.ReadFile(namespaceFile); err == nil {
		return strings.TrimSpace(string(text))
	}
	return DefaultLeaseNamespace
}
