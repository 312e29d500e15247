// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/syncer/resources"
)

// hostWatch describes how the host's objects of a resource are listed and watched.
type hostWatch struct {
	api      cache.Getter
	resource string
	of       runtime.Object
	selector string // label selector; empty for all
}

func (w hostWatch) lister(namespace string) *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(w.api, w.resource, namespace, func(o *metav1.ListOptions) { o.LabelSelector = w.selector })
}

// hostWatches returns the watch of each resource, one for all spaces, and that of quotas.
func hostWatches(config *rest.Config) (map[string]hostWatch, error) {
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(resources.Scheme()).WithoutConversion()
	watch := func(gvr schema.GroupVersionResource, of runtime.Object, selector string, extension bool) (hostWatch, error) {
		config := rest.CopyConfig(config)
		config.GroupVersion, config.APIPath, config.NegotiatedSerializer = ptr.To(gvr.GroupVersion()), "/apis", codecs
		if gvr.Group == "" {
			config.APIPath = "/api"
		}
		if extension { // which supports only JSON
			config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
		}
		api, err := rest.RESTClientForConfigAndClient(config, connections)
		return hostWatch{api, gvr.Resource, of, selector}, err
	}
	watches := map[string]hostWatch{}
	for _, r := range resources.Table() {
		if r.Type == nil {
			continue
		}
		if watches[r.Name], err = watch(r.GVR(), r.Type, r.Selector, r.Extension); err != nil {
			return nil, fmt.Errorf("watch %s: %w", r.Name, err)
		}
	}
	watches[Quotas], err = watch(corev1.SchemeGroupVersion.WithResource(Quotas), &corev1.ResourceQuota{}, "", false)
	return watches, err
}
