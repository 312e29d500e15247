// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kcmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	garbagecollectorconfig "k8s.io/kubernetes/pkg/controller/garbagecollector/config"
)

// mapperReset is how old discovery may be, as upstream's controller manager has
// it.
const mapperReset = 30 * time.Second

// controllers are running upstream controllers.
type controllers struct {
	cancel   context.CancelFunc
	metadata metadatainformer.SharedInformerFactory
	done     chan struct{}
}

// startControllers builds and runs the controllers that c names.
func startControllers(c Config, id credentials, loopback *rest.Config, factory *ownedInformers) (*controllers, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), c.Logger))
	r := &controllers{cancel: cancel, done: make(chan struct{})}
	held := holdInformers(factory)
	controllerCtx, built, err := r.build(ctx, c, id, loopback, held)
	if err != nil {
		cancel()
	}
	if controllerCtx.InformersStarted != nil {
		controllerCtx.ObjectOrMetadataInformerFactory.Start(ctx.Done())
		close(controllerCtx.InformersStarted)
	}
	held.release()
	// Even if it is to end at once: a controller's work queues end only with a
	// controller that ran.
	go func() {
		defer close(r.done)
		app.RunControllers(ctx, controllerCtx, built, 0, 0)
	}()
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("build controllers: %w", err)
	}
	return r, nil
}

// stop ends the controllers and waits for them.
func (r *controllers) stop() {
	r.cancel()
	<-r.done
	if r.metadata != nil {
		r.metadata.Shutdown()
	}
}

func (r *controllers) build(
	ctx context.Context, c Config, id credentials, loopback *rest.Config, factory *heldInformers,
) (app.ControllerContext, []app.Controller, error) {
	descriptors, err := selectControllers(c.Controllers)
	if err != nil {
		return app.ControllerContext{}, nil, err
	}
	clients := clientbuilder.SimpleControllerClientBuilder{ClientConfig: loopback}
	controllerCtx, err := r.context(ctx, c, id, clients, factory)
	if err != nil {
		return app.ControllerContext{}, nil, err
	}
	var built []app.Controller
	for name, descriptor := range descriptors {
		var controller app.Controller
		switch name {
		case names.ServiceAccountTokenController:
			// Upstream's descriptor of this one can't be built by others.
			controller, err = newTokensController(ctx, id, c.ServingCA, clients, factory)
		case names.ValidatingAdmissionPolicyStatusController:
			controller, err = newPolicyController(controllerCtx)
		default:
			controller, err = descriptor.BuildController(ctx, controllerCtx)
		}
		if err != nil {
			return controllerCtx, built, fmt.Errorf("build %s: %w", name, err)
		}
		if controller != nil { // nil if a feature gate has it off
			built = append(built, controller)
		}
	}
	return controllerCtx, built, nil
}

func (r *controllers) context(
	ctx context.Context, c Config, id credentials, clients clientbuilder.ControllerClientBuilder, factory *heldInformers,
) (app.ControllerContext, error) {
	config, err := kcmoptions.NewDefaultComponentConfig()
	if err != nil {
		return app.ControllerContext{}, fmt.Errorf("default controller configuration: %w", err)
	}
	config.Generic.Controllers = c.Controllers
	config.Generic.ControllerStartInterval.Duration = 0
	config.Generic.LeaderElection.LeaderElect = false
	config.SAController.ServiceAccountKeyFile = id.serviceAccountKey
	config.SAController.RootCAFile = id.servingCA
	ignored := garbagecollector.DefaultIgnoredResources()
	for gr := range ignored {
		config.GarbageCollectorController.GCIgnoredResources = append(config.GarbageCollectorController.GCIgnoredResources,
			garbagecollectorconfig.GroupResource{Group: gr.Group, Resource: gr.Resource})
	}

	metadataConfig, err := clients.Config("metadata-informers")
	if err != nil {
		return app.ControllerContext{}, err
	}
	metadataClient, err := metadata.NewForConfig(metadataConfig)
	if err != nil {
		return app.ControllerContext{}, fmt.Errorf("make metadata client: %w", err)
	}
	r.metadata = metadatainformer.NewSharedInformerFactoryWithOptions(
		metadataClient, informerResync, metadatainformer.WithTransform(trimManagedFields))
	discovery, err := clients.DiscoveryClient("controller-discovery")
	if err != nil {
		return app.ControllerContext{}, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery))
	go wait.Until(mapper.Reset, mapperReset, ctx.Done())

	var seen informers.SharedInformerFactory = factory
	if c.HiddenNodes {
		seen = hiddenNodes{factory}
	}
	controllerCtx := app.ControllerContext{
		ClientBuilder:                   clients,
		InformerFactory:                 seen,
		ObjectOrMetadataInformerFactory: informerfactory.NewInformerFactory(factory, r.metadata),
		ComponentConfig:                 config,
		RESTMapper:                      mapper,
		InformersStarted:                make(chan struct{}),
		ResyncPeriod:                    func() time.Duration { return informerResync },
		ControllerManagerMetrics:        controllersmetrics.NewControllerManagerMetrics("kube-controller-manager"),
	}
	if slices.Contains(c.Controllers, names.GarbageCollectorController) {
		controllerCtx.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(ctx, metadataClient, mapper,
			ignored, controllerCtx.ObjectOrMetadataInformerFactory, controllerCtx.InformersStarted)
	}
	return controllerCtx, nil
}

// selectControllers returns the descriptors of the named controllers.
func selectControllers(wanted []string) (map[string]*app.ControllerDescriptor, error) {
	all := app.NewControllerDescriptors()
	selected := make(map[string]*app.ControllerDescriptor, len(wanted))
	var unknown []error
	for _, name := range wanted {
		d, ok := all[name]
		if !ok {
			unknown = append(unknown, fmt.Errorf("there is no controller %q", name))
			continue
		}
		selected[name] = d
	}
	return selected, errors.Join(unknown...)
}
