// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/refusal"
)

const (
	// builtinDiscoveryBytes is what discovery says of the built-in APIs.
	builtinDiscoveryBytes = 256 << 10
	// versionDiscoveryBytes is what it says of a version of a CRD, with its subresources, besides names.
	versionDiscoveryBytes = 1 << 10
	// discoveryFactor is for the buffer that an answer is encoded into, which grows by doubling.
	discoveryFactor = 2
)

// DiscoveryCost has requests for discovery hold what their answer takes until it is written: it is encoded whole, for each
// of them, and is as large as the space's CRDs make it.
type DiscoveryCost struct {
	CRDs crdlisters.CustomResourceDefinitionLister // set before requests come
}

// Handler wraps what serves discovery.
func (d *DiscoveryCost) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if ok && !info.IsResourceRequest && !inside.Is(r.Context()) && isDiscovery(r.URL.Path) {
			err := bounds.ReservationOf(r.Context()).Grow(d.size(r.URL.Path))
			if err != nil {
				refusal.Serve(w, r, refusal.Status(err, refusal.NoResource, ""))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func isDiscovery(path string) bool { return path == "/apis" || strings.HasPrefix(path, "/apis/") }

// size is about what the answer for a path takes: for /apis, of all groups.
func (d *DiscoveryCost) size(path string) int64 {
	crds, err := d.CRDs.List(labels.Everything())
	if err != nil {
		return builtinDiscoveryBytes
	}
	group, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(path, "/apis"), "/"), "/")
	var size int64
	for _, c := range crds {
		if group == "" || c.Spec.Group == group {
			size += int64(len(c.Spec.Versions)) * (versionDiscoveryBytes + bytesOfNames(&c.Spec.Names))
		}
	}
	if group == "" {
		size += builtinDiscoveryBytes
	}
	return discoveryFactor * size
}

func bytesOfNames(n *apiextensionsv1.CustomResourceDefinitionNames) int64 {
	const quotes = 3 // with the comma
	var size int
	for _, list := range [][]string{n.ShortNames, n.Categories} {
		for _, name := range list {
			size += len(name) + quotes
		}
	}
	return int64(size)
}
