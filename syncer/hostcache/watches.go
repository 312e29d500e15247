// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// hostWatch is where the host's objects of a resource are listed and watched.
type hostWatch struct {
	api      cache.Getter
	resource string
	of       runtime.Object
	selector string // of labels; all if it is empty
}

func (w hostWatch) lister() *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(w.api, w.resource, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.LabelSelector = w.selector })
}

const (
	// ofSpaces have the label of a space.
	ofSpaces = translate.LabelSpace
	// ofTenants have also that of a namespace in it, which isolation objects have not.
	ofTenants = translate.LabelSpace + "," + translate.LabelNamespace
)

// hostWatches are those of each resource, one for all spaces.
func hostWatches(c kubernetes.Interface, config *rest.Config) (map[string]hostWatch, error) {
	core, network := c.CoreV1().RESTClient(), c.NetworkingV1().RESTClient()
	watches := map[string]hostWatch{
		resources.Pods:            {core, "pods", &corev1.Pod{}, ofSpaces},
		resources.Nodes:           {core, "nodes", &corev1.Node{}, ""},
		resources.Services:        {core, "services", &corev1.Service{}, ofSpaces},
		resources.ConfigMaps:      {core, "configmaps", &corev1.ConfigMap{}, ofSpaces},
		resources.Secrets:         {core, "secrets", &corev1.Secret{}, ofSpaces},
		resources.Claims:          {core, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, ofSpaces},
		resources.EndpointSlices:  {c.DiscoveryV1().RESTClient(), "endpointslices", &discoveryv1.EndpointSlice{}, ofSpaces},
		resources.NetworkPolicies: {network, "networkpolicies", &networkingv1.NetworkPolicy{}, ofTenants},
		resources.Budgets:         {c.PolicyV1().RESTClient(), "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, ofSpaces},
		resources.ServiceAccounts: {core, "serviceaccounts", &corev1.ServiceAccount{}, ofTenants},
		resources.Volumes:         {core, "persistentvolumes", &corev1.PersistentVolume{}, ""},
		resources.Ingresses:       {network, "ingresses", &networkingv1.Ingress{}, ""},
		resources.Events:          {core, "events", &corev1.Event{}, ""},
		resources.StorageClasses:  {c.StorageV1().RESTClient(), "storageclasses", &storagev1.StorageClass{}, ""},
		resources.IngressClasses:  {network, "ingressclasses", &networkingv1.IngressClass{}, ""},
		resources.RuntimeClasses:  {c.NodeV1().RESTClient(), "runtimeclasses", &nodev1.RuntimeClass{}, ""},
		resources.PriorityClasses: {c.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{}, ""},

		resources.ExportedPriorityClasses: {c.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{}, ofSpaces},
		resources.ExportedStorageClasses:  {c.StorageV1().RESTClient(), "storageclasses", &storagev1.StorageClass{}, ofSpaces},
	}
	for resource, e := range Extensions() {
		api, err := e.api(config)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		selector := ofSpaces
		if IsClass(resource) || slices.Contains(Exposures(), resource) { // others' claims count as well
			selector = ""
		}
		watches[resource] = hostWatch{api, resource, e.Object, selector}
	}
	return watches, nil
}
