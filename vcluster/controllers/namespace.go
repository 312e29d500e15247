// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	namespacecontroller "k8s.io/kubernetes/pkg/controller/namespace"
)

// namespaceController empties and deletes namespaces. It is upstream's, but for
// what it does when discovery finds nothing, where upstream's ends the process, and for
// how much it is told of kinds that pods serve.
type namespaceController struct {
	*namespacecontroller.NamespaceController
	workers int
}

func newNamespaceController(ctx context.Context, c app.ControllerContext, aggregated func(groupVersion string) bool) (app.Controller, error) {
	config, err := c.NewClientConfig(names.NamespaceController)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	kinds, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	first, err := discover()
	if len(first) == 0 {
		return nil, fmt.Errorf("discover resources: %w", errors.Join(errors.New("there are none"), err))
	}
	// The constructor looks for itself, and must find some.
	var once sync.Once
	again := func() (found []*metav1.APIResourceList, err error) {
		asked := true
		once.Do(func() { found, asked = first, false })
		if asked {
			return discover()
		}
		return found, nil
	}
	settings := c.ComponentConfig.NamespaceController
	return &namespaceController{
		NamespaceController: namespacecontroller.NewNamespaceController(ctx, client, foreignKinds{kinds, aggregated}, again,
			c.InformerFactory.Core().V1().Namespaces(), settings.NamespaceSyncPeriod.Duration, corev1.FinalizerKubernetes),
		workers: int(settings.ConcurrentNamespaceSyncs),
	}, nil
}

func (*namespaceController) Name() string { return names.NamespaceController }

func (n *namespaceController) Run(ctx context.Context) { n.NamespaceController.Run(ctx, n.workers) }
