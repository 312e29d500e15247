// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

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

	"github.com/berth-dev/berth/translate"
)

// hostWatch is where the host's objects of a resource are listed and watched.
type hostWatch struct {
	api      cache.Getter
	resource string
	of       runtime.Object
	selector string // of labels; all if it is empty
}

func (w hostWatch) lister(namespace string) *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(w.api, w.resource, namespace, func(o *metav1.ListOptions) { o.LabelSelector = w.selector })
}

// clusterScoped reports whether the objects of a resource are in no namespace.
func clusterScoped(resource string) bool {
	return resource == volumes || resource == nodes || isClass(resource) || resource == exportedPriorityClasses || resource == exportedStorageClasses
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
		pods:            {core, "pods", &corev1.Pod{}, ofSpaces},
		nodes:           {core, "nodes", &corev1.Node{}, ""},
		services:        {core, "services", &corev1.Service{}, ofSpaces},
		configMaps:      {core, "configmaps", &corev1.ConfigMap{}, ofSpaces},
		secrets:         {core, "secrets", &corev1.Secret{}, ofSpaces},
		claims:          {core, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, ofSpaces},
		endpointSlices:  {c.DiscoveryV1().RESTClient(), "endpointslices", &discoveryv1.EndpointSlice{}, ofSpaces},
		networkPolicies: {network, "networkpolicies", &networkingv1.NetworkPolicy{}, ofTenants},
		budgets:         {c.PolicyV1().RESTClient(), "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, ofSpaces},
		serviceAccounts: {core, "serviceaccounts", &corev1.ServiceAccount{}, ofTenants},
		volumes:         {core, "persistentvolumes", &corev1.PersistentVolume{}, ""},
		ingresses:       {network, "ingresses", &networkingv1.Ingress{}, ""},
		events:          {core, "events", &corev1.Event{}, ""},
		storageClasses:  {c.StorageV1().RESTClient(), "storageclasses", &storagev1.StorageClass{}, ""},
		ingressClasses:  {network, "ingressclasses", &networkingv1.IngressClass{}, ""},
		runtimeClasses:  {c.NodeV1().RESTClient(), "runtimeclasses", &nodev1.RuntimeClass{}, ""},
		priorityClasses: {c.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{}, ""},

		exportedPriorityClasses: {c.SchedulingV1().RESTClient(), "priorityclasses", &schedulingv1.PriorityClass{}, ofSpaces},
		exportedStorageClasses:  {c.StorageV1().RESTClient(), "storageclasses", &storagev1.StorageClass{}, ofSpaces},
	}
	for resource, e := range extensions() {
		api, err := e.api(config)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resource, err)
		}
		selector := ofSpaces
		if isClass(resource) || slices.Contains(exposures(), resource) { // others' claims count as well
			selector = ""
		}
		watches[resource] = hostWatch{api, resource, e.of, selector}
	}
	return watches, nil
}
