// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kcmconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	garbagecollectorconfig "k8s.io/kubernetes/pkg/controller/garbagecollector/config"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/timeshare"
	"github.com/berth-dev/berth/vcluster/controllers/views"
	"github.com/berth-dev/berth/vcluster/informer"
)

// mapperReset is how old discovery may be, as upstream's controller manager has
// it.
const mapperReset = 30 * time.Second

// controllerBuilder builds upstream's controllers, each with informers of its
// own view.
type controllerBuilder struct {
	config      Config
	descriptors map[string]*app.ControllerDescriptor
	clients     controllerClients
	settings    *kcmconfig.KubeControllerManagerConfiguration
	mapper      *restmapper.DeferredDiscoveryRESTMapper
	metrics     *controllersmetrics.ControllerManagerMetrics
	pool        *informer.Pool
	lists       *timeshare.Share
}

// pace is for a controller that runs until ctx ends.
func (b *controllerBuilder) pace(ctx context.Context) *views.Pace {
	return views.NewPace(ctx, clock.RealClock{}, b.lists)
}

func newControllerBuilder(c Config) (*controllerBuilder, error) {
	descriptors, err := selectControllers(c.Names)
	if err != nil {
		return nil, err
	}
	settings, err := controllerSettings(c)
	if err != nil {
		return nil, err
	}
	clients := controllerClients{clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Loopback}, c.Aggregated}
	discovery, err := clients.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, err
	}
	return &controllerBuilder{
		config:      c,
		descriptors: descriptors,
		clients:     clients,
		settings:    settings,
		mapper:      restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		metrics:     controllersmetrics.NewControllerManagerMetrics("kube-controller-manager"),
		pool:        c.Informers,
		lists:       views.NewShare(c.Account),
	}, nil
}

// limited are the clients of one controller.
func (b *controllerBuilder) limited() controllerClients {
	clients := b.clients
	clients.ClientConfig = limitRequests(clients.ClientConfig, b.config.Account)
	return clients
}

// forget drops old discovery until ctx ends.
func (b *controllerBuilder) forget(ctx context.Context) {
	wait.UntilWithContext(ctx, b.reset, mapperReset)
}

func (b *controllerBuilder) reset(context.Context) { b.mapper.Reset() }

// build is a [buildFunc].
func (b *controllerBuilder) build(ctx context.Context, name string) (func(context.Context), error) {
	view := b.pool.HeldView()
	inputs, kinds, err := b.inputs(ctx, name, view)
	var controller app.Controller
	if err == nil {
		controller, err = b.controller(ctx, name, inputs, view)
	}
	if err != nil || controller == nil {
		view.Release()
		view.Close()
		return nil, err
	}
	return func(ctx context.Context) {
		defer func() {
			view.Close()
			if ctx.Err() != nil { // else it ended by itself, and they go on
				kinds.Shutdown()
			}
		}()
		inputs.ObjectOrMetadataInformerFactory.Start(ctx.Done())
		close(inputs.InformersStarted)
		view.Release()
		// Controllers wait for it, too, but look only every 100 ms.
		view.WaitForCacheSyncWithContext(ctx)
		controller.Run(ctx)
	}, nil
}

func (b *controllerBuilder) controller(
	ctx context.Context, name string, inputs app.ControllerContext, view *informer.View,
) (app.Controller, error) {
	switch name {
	case names.ServiceAccountTokenController:
		// Upstream's descriptor of this one can't be built by others.
		return newTokensController(ctx, b.config.Credentials, b.config.ServingCA, b.limited(), view)
	case names.CertificateSigningRequestSigningController:
		return newSigningController(ctx, b.config.Credentials.CA, inputs)
	case names.ValidatingAdmissionPolicyStatusController:
		return newPolicyController(inputs, b.pace(ctx))
	case names.NamespaceController:
		return newNamespaceController(ctx, inputs, b.clients.aggregated)
	case names.ClusterRoleAggregationController:
		return newAggregator(inputs)
	case names.ResourceQuotaController:
		return newQuotaController(ctx, inputs, b.pace(ctx))
	case names.ResourceClaimController:
		// The process would keep what the first space has of claims, for a metric. Only the first call registers one.
		resourceclaimmetrics.RegisterMetrics(nil)
		return b.descriptors[name].BuildController(ctx, inputs)
	default:
		return b.descriptors[name].BuildController(ctx, inputs)
	}
}

// inputs returns what a controller is built from. The factory holds those of its
// informers that know metadata only.
func (b *controllerBuilder) inputs(
	ctx context.Context, name string, view *informer.View,
) (app.ControllerContext, metadatainformer.SharedInformerFactory, error) {
	clients := b.limited()
	config, err := clients.Config("metadata-informers")
	if err != nil {
		return app.ControllerContext{}, nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return app.ControllerContext{}, nil, fmt.Errorf("make metadata client: %w", err)
	}
	kinds := views.NewCounted(b.config.Account,
		metadatainformer.NewSharedInformerFactoryWithOptions(client, informer.Resync, metadatainformer.WithTransform(informer.Trim)))
	var seen informers.SharedInformerFactory = view
	if b.config.HiddenNodes && name != names.DaemonSetController { // which works on the nodes that are there
		seen = views.CoreView{SharedInformerFactory: seen, View: func(all coreinformers.Interface) coreinformers.Interface { return views.HiddenNodes{Interface: all} }}
	}
	if name == names.EndpointsController {
		seen = views.CoreView{SharedInformerFactory: seen, View: func(all coreinformers.Interface) coreinformers.Interface { return views.KeptEndpoints{Interface: all} }}
	}
	if b.config.Account != nil && (name == names.EndpointsController || name == names.EndpointSliceController) {
		seen = views.BoundTargets(ctx, b.config.Account, seen)
	}
	if b.config.Account != nil {
		seen = views.Workloads(name, b.pace(ctx), seen)
		if views.ListsPods(name) {
			seen = views.Paced(b.pace(ctx), seen)
		}
	}
	if name == names.HorizontalPodAutoscalerController {
		clients.ClientConfig.Wrap(checkMetrics)
	}
	if name == names.GarbageCollectorController {
		clients.ClientConfig.Wrap(markCollector)
	}
	inputs := app.ControllerContext{
		ClientBuilder:                   clients,
		InformerFactory:                 seen,
		ObjectOrMetadataInformerFactory: informerfactory.NewInformerFactory(view, kinds),
		ComponentConfig:                 *b.settings,
		RESTMapper:                      b.mapper,
		InformersStarted:                make(chan struct{}),
		ResyncPeriod:                    func() time.Duration { return informer.Resync },
		ControllerManagerMetrics:        b.metrics,
	}
	if name == names.GarbageCollectorController {
		inputs.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(ctx, client, b.mapper,
			garbagecollector.DefaultIgnoredResources(), inputs.ObjectOrMetadataInformerFactory, inputs.InformersStarted)
	}
	return inputs, kinds, nil
}

// controllerSettings returns what the flags of kube-controller-manager would
// say.
func controllerSettings(c Config) (*kcmconfig.KubeControllerManagerConfiguration, error) {
	settings, err := kcmoptions.NewDefaultComponentConfig()
	if err != nil {
		return nil, fmt.Errorf("default controller configuration: %w", err)
	}
	settings.Generic.Controllers = c.Names
	settings.Generic.LeaderElection.LeaderElect = false
	// To find out when a CronJob was last due, its controller may count the minutes of half a year: not of several at once.
	settings.CronJobController.ConcurrentCronJobSyncs = 1
	settings.SAController.ServiceAccountKeyFile = c.Credentials.ServiceAccountKey
	settings.SAController.RootCAFile = c.Credentials.ServingCA
	// Each of these may work for seconds on one change of a pod, or on all pods at once.
	settings.EndpointController.ConcurrentEndpointSyncs = 2
	settings.EndpointSliceController.ConcurrentServiceEndpointSyncs = 2
	settings.EndpointSliceMirroringController.MirroringConcurrentServiceEndpointSyncs = 2
	settings.HPAController.ConcurrentHorizontalPodAutoscalerSyncs = 1
	settings.ResourceQuotaController.ConcurrentResourceQuotaSyncs = 1
	for gr := range garbagecollector.DefaultIgnoredResources() {
		settings.GarbageCollectorController.GCIgnoredResources = append(settings.GarbageCollectorController.GCIgnoredResources,
			garbagecollectorconfig.GroupResource{Group: gr.Group, Resource: gr.Resource})
	}
	return &settings, nil
}

// selectControllers returns the descriptors of the named controllers.
func selectControllers(wanted []string) (map[string]*app.ControllerDescriptor, error) {
	all := app.NewControllerDescriptors()
	selected := make(map[string]*app.ControllerDescriptor, len(wanted))
	var unknown []error
	for _, name := range slices.Sorted(slices.Values(wanted)) {
		d, ok := all[name]
		if !ok {
			unknown = append(unknown, fmt.Errorf("there is no controller %q", name))
			continue
		}
		selected[name] = d
	}
	return selected, errors.Join(unknown...)
}
