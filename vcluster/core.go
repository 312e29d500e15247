// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/controlplane/controller/kubernetesservice"

	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

// kubernetesServicePort is the port of the Service default/kubernetes.
const kubernetesServicePort = 443

// newCore is upstream's New of c, without the handlers of the built-in APIs, which are shared. It creates only those
// registries that the space can't share.
func newCore(
	c controlplane.CompletedConfig, next genericapiserver.DelegationTarget, config Config, quiet func() time.Duration,
) (*genericapiserver.GenericAPIServer, *registries, error) {
	control, err := c.ControlPlane.New(controlplaneapiserver.KubeAPIServer, next)
	if err != nil {
		return nil, nil, err
	}
	server := control.GenericAPIServer
	client, err := kubernetes.NewForConfig(c.ControlPlane.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	providers, err := c.StorageProviders(client)
	if err != nil {
		return nil, nil, err
	}
	own := newRegistries(providers, c.ControlPlane.APIResourceConfigSource, c.ControlPlane.Generic.RESTOptionsGetter, config.Pods)
	server.RegisterDestroyFunc(own.destroy)
	for _, p := range providers {
		if hooked, ok := p.(genericapiserver.PostStartHookProvider); ok {
			name, hook, err := hooked.PostStartHook()
			if err != nil {
				return nil, nil, fmt.Errorf("build hook: %w", err)
			}
			if err := server.AddPostStartHook(name, hook); err != nil {
				return nil, nil, err
			}
		}
	}
	service := kubernetesservice.New(kubernetesservice.Config{
		PublicIP:           c.ControlPlane.Generic.PublicAddress,
		EndpointReconciler: newAPIEndpoints(client, c.APIServerServiceIP, config.KubernetesServiceServed, quiet),
		EndpointInterval:   c.EndpointReconcilerConfig.Interval,
		ServiceIP:          c.APIServerServiceIP,
		ServicePort:        c.APIServerServicePort,
		PublicServicePort:  kubernetesServicePort,
	}, client, c.ControlPlane.VersionedInformers.Core().V1().Services())
	cidr := defaultservicecidr.NewController(c.ServiceIPRange, c.SecondaryServiceIPRange, client)
	return server, own, errors.Join(
		server.AddPostStartHook("bootstrap-controller", func(hook genericapiserver.PostStartHookContext) error {
			service.Start(hook.Done())
			return nil
		}),
		server.AddPreShutdownHook("stop-kubernetes-service-controller", func() error {
			service.Stop()
			return nil
		}),
		server.AddPostStartHook("start-kubernetes-service-cidr-controller", func(hook genericapiserver.PostStartHookContext) error {
			if err := ensureServiceRange(hook, client, c.ServiceIPRange); err != nil && hook.Err() == nil {
				klog.FromContext(hook).Error(err, "Could not create the range of service addresses; Berth retries")
			}
			cidr.Start(hook) // returns when the range exists, without which services get no address
			return nil
		}),
	)
}

// ensureServiceRange creates the ServiceCIDR of a new control plane. Upstream's controller would do so, too, but if its watch is
// slow, it tries a second time at once, and records a warning in the space that the range is inconsistent.
func ensureServiceRange(ctx context.Context, client kubernetes.Interface, of net.IPNet) error {
	ranges := client.NetworkingV1().ServiceCIDRs()
	_, err := ranges.Get(ctx, defaultservicecidr.DefaultServiceCIDRName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = ranges.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: defaultservicecidr.DefaultServiceCIDRName},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{of.String()}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the range of service addresses: %w", err)
	}
	return nil
}

// registries are those of one space: see [builtin.Space]. The registries of a group are created at their first use.
type registries struct {
	groups map[string]func() (map[schema.GroupVersionResource]rest.Storage, error)
}

func newRegistries(
	providers []controlplaneapiserver.RESTStorageProvider, enabled serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter, pods podaccess.Pods,
) *registries {
	r := &registries{groups: map[string]func() (map[schema.GroupVersionResource]rest.Storage, error){}}
	for _, p := range providers {
		r.groups[p.GroupName()] = sync.OnceValues(func() (map[schema.GroupVersionResource]rest.Storage, error) {
			info, err := p.NewRESTStorage(enabled, options)
			if err != nil {
				return nil, err
			}
			own := map[schema.GroupVersionResource]rest.Storage{}
			for version, storages := range info.VersionedResourcesStorageMap {
				for _, s := range storages {
					builtin.Strip(s)
				}
				for resource, s := range builtin.Own(p.GroupName(), storages) {
					if pods != nil {
						s = podaccess.Connected(s, pods)
					}
					own[schema.GroupVersionResource{Group: p.GroupName(), Version: version, Resource: resource}] = s
				}
			}
			return own, nil
		})
	}
	return r
}

func (r *registries) get(resource schema.GroupVersionResource) (rest.Storage, error) {
	open := r.groups[resource.Group]
	if open == nil {
		return nil, fmt.Errorf("there is no group %q", resource.Group)
	}
	own, err := open()
	if err != nil {
		return nil, err
	}
	return own[resource], nil
}

// destroy ends the allocators of addresses and ports, which exist even without services.
func (r *registries) destroy() {
	if s, err := r.get(corev1.SchemeGroupVersion.WithResource("services")); err == nil {
		s.Destroy()
	}
}
