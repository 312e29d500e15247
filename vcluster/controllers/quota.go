// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/quota/v1/install"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/controllers/views"
)

// quotaDiscovery is how often the controller of quotas looks for new resources, as upstream has it.
const quotaDiscovery = 30 * time.Second

// quotaController counts what quotas limit. It is upstream's, with evaluators of its own.
type quotaController struct {
	*resourcequota.Controller
	discover resourcequota.NamespacedResourcesFunc
	workers  int
}

func newQuotaController(ctx context.Context, c app.ControllerContext, pace *views.Pace) (app.Controller, error) {
	client, err := c.NewClient(names.ResourceQuotaController)
	if err != nil {
		return nil, err
	}
	discovery, err := c.ClientBuilder.DiscoveryClient(names.ResourceQuotaController)
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	listers := generic.ListerFuncForResourceFunc(c.InformerFactory.ForResource)
	settings, err := install.NewQuotaConfigurationForControllers(listers, c.InformerFactory)
	if err != nil {
		return nil, fmt.Errorf("make evaluators of quotas: %w", err)
	}
	quotas, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     c.InformerFactory.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(c.ComponentConfig.ResourceQuotaController.ResourceQuotaSyncPeriod.Duration),
		InformerFactory:           c.ObjectOrMetadataInformerFactory,
		ReplenishmentResyncPeriod: c.ResyncPeriod,
		DiscoveryFunc:             discovery.ServerPreferredNamespacedResources,
		IgnoredResourcesFunc:      settings.IgnoredResources,
		InformersStarted:          c.InformersStarted,
		Registry:                  boundedEvaluators{generic.NewRegistry(settings.Evaluators()), listers, pace},
		UpdateFilter:              install.DefaultUpdateFilter(),
	})
	if err != nil {
		return nil, fmt.Errorf("build controller of quotas: %w", err)
	}
	return &quotaController{quotas, discovery.ServerPreferredNamespacedResources, int(c.ComponentConfig.ResourceQuotaController.ConcurrentResourceQuotaSyncs)}, nil
}

func (*quotaController) Name() string { return names.ResourceQuotaController }

// Run works until ctx ends.
func (q *quotaController) Run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	safego.Go(&both, "discover resources for quotas", func() { q.Sync(ctx, q.discover, quotaDiscovery) }, nil)
	q.Controller.Run(ctx, q.workers)
}

// boundedEvaluators are a registry whose evaluators take their time.
type boundedEvaluators struct {
	quota.Registry
	listers quota.ListerForResourceFunc
	pace    *views.Pace
}

// List is what usage is calculated with.
func (r boundedEvaluators) List() []quota.Evaluator {
	all := r.Registry.List()
	for i, e := range all {
		all[i] = boundedEvaluator{e, r.listers, r.pace}
	}
	return all
}

type boundedEvaluator struct {
	quota.Evaluator
	listers quota.ListerForResourceFunc
	pace    *views.Pace
}

// UsageStats counts what the quota limits. Upstream counts all that objects name, in a map that it copies for each object: for 1,000
// pods with 100 names each, that takes half a minute.
func (e boundedEvaluator) UsageStats(options quota.UsageStatsOptions) (stats quota.UsageStats, err error) {
	work := e.pace.Begin()
	if resource, ok := e.namesOwn(); ok {
		stats, err = generic.CalculateUsageStats(options, generic.ListResourceUsingListerFunc(e.listers, resource), e.matches, e.usage(options.Resources, work))
	} else {
		stats, err = e.Evaluator.UsageStats(options)
	}
	if err != nil {
		return stats, err
	}
	return stats, work.End()
}

// namesOwn returns the resource if its objects name what they use: pods extended resources, claims the classes that they are of.
func (e boundedEvaluator) namesOwn() (schema.GroupVersionResource, bool) {
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
		resourcev1.SchemeGroupVersion.WithResource("resourceclaims"),
	} {
		if resource.GroupResource() == e.GroupResource() {
			return resource, true
		}
	}
	return schema.GroupVersionResource{}, false
}

func (e boundedEvaluator) matches(scope corev1.ScopedResourceSelectorRequirement, object runtime.Object) (bool, error) {
	matching, err := e.MatchingScopes(object, []corev1.ScopedResourceSelectorRequirement{scope})
	return len(matching) > 0, err
}

// usage returns what an object uses of the resources.
func (e boundedEvaluator) usage(resources []corev1.ResourceName, work *views.Work) generic.UsageFunc {
	wanted := sets.New(resources...)
	return func(object runtime.Object) (corev1.ResourceList, error) {
		used, err := e.Usage(object)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(used, func(name corev1.ResourceName, _ resource.Quantity) bool { return !wanted.Has(name) })
		return used, work.Pause()
	}
}
