// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/vcluster/refusal"
	"github.com/berth-dev/berth/vcluster/requests"
)

// What a document of version 3 takes while it is made: for each CRD, and in multiples of what the CRD's version takes in
// memory. The form in protobuf is made by way of a tree of the whole document.
const (
	documentBytes, documentFactor           = 512 << 10, 3
	protobufDocumentBytes, protobufDocument = 2 << 20, 12
)

// makingOfCRDs limits how many documents of CRDs, of version 3, the process makes at once.
var makingOfCRDs = sync.OnceValue(func() *semaphore.Weighted { return semaphore.NewWeighted(2) })

// crdsByPath are the established CRDs of a space, by the path of the document of version 3 that describes them, in the order
// of their names.
func (d *SpaceDocuments) crdsByPath() (map[string][]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := d.crds.Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list CRDs: %w", err)
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	paths := map[string][]*apiextensionsv1.CustomResourceDefinition{}
	for _, c := range all {
		if !apihelpers.IsCRDConditionTrue(c, apiextensionsv1.Established) {
			continue
		}
		for _, v := range c.Spec.Versions {
			if path := "apis/" + c.Spec.Group + "/" + v.Name; v.Served {
				paths[path] = append(paths[path], c)
			}
		}
	}
	return paths, nil
}

// documentETag changes with the CRDs that a document describes. Upstream's is of the document, which would have to be made.
func documentETag(crds []*apiextensionsv1.CustomResourceDefinition) string {
	hash := sha256.New()
	for _, c := range crds {
		_, _ = fmt.Fprintf(hash, "%s/%s/%d/%s\n", c.Name, c.UID, c.Generation, c.ResourceVersion)
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

// documentURL is where a document is that does not change.
func documentURL(path, etag string) string {
	return (&url.URL{Path: openAPIV3Path + "/" + path, RawQuery: url.Values{"hash": {etag}}.Encode()}).String()
}

// crdRoots lists the documents that describe CRDs.
func (d *SpaceDocuments) crdRoots() (map[string]handler3.OpenAPIV3DiscoveryGroupVersion, error) {
	paths, err := d.crdsByPath()
	roots := map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}
	for path, crds := range paths {
		roots[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentURL(path, documentETag(crds))}
	}
	return roots, err
}

// serveCRDs serves the document that describes the CRDs of one group and version. It is made for each request and not kept:
// it takes a third of a megabyte for each version of each CRD, however small that is, and clients keep it themselves.
func (d *SpaceDocuments) serveCRDs(w http.ResponseWriter, r *http.Request, path string) {
	paths, err := d.crdsByPath()
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	crds := paths[path]
	if len(crds) == 0 {
		http.NotFound(w, r)
		return
	}
	etag := documentETag(crds)
	h := w.Header()
	h.Set("Vary", "Accept")
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != etag {
			http.Redirect(w, r, documentURL(path, etag), http.StatusMovedPermanently)
			return
		}
		h.Set("Cache-Control", "public, immutable")
	}
	h.Set("Etag", `"`+etag+`"`)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	made, err := d.makeV3(r, path, crds)
	if err != nil {
		h.Del("Cache-Control")
		h.Del("Etag")
		refusal.Serve(w, r, err)
		return
	}
	h.Set("Content-Type", made.Header().Get("Content-Type"))
	w.WriteHeader(made.Code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(made.Body.Bytes())
	}
}

// makeV3 makes a document in the form that a request asks for, as upstream does. What that takes is taken from the request's
// reservation, which holds the answer until it is written. A space makes one document at a time, and the process two.
func (d *SpaceDocuments) makeV3(
	r *http.Request, path string, crds []*apiextensionsv1.CustomResourceDefinition,
) (*httptest.ResponseRecorder, error) {
	ctx := r.Context()
	for _, turn := range []*semaphore.Weighted{d.user.making, makingOfCRDs()} {
		if err := turn.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("wait for other OpenAPI documents: %w", err)
		}
		defer turn.Release(1)
	}
	_, read := requests.Reading(ctx)
	defer read.End()
	version := path[strings.LastIndexByte(path, '/')+1:]
	protobuf := strings.Contains(r.Header.Get("Accept"), "protobuf")
	var specs []*spec3.OpenAPI
	for _, c := range crds {
		if err := read.Grow(documentCost(c, version, protobuf)); err != nil {
			return nil, refusal.Status(err, apiextensionsv1.Resource("customresourcedefinitions"), c.Name)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("describe CRDs: %w", context.Cause(ctx))
		}
		s, err := panicsAsErrors("describe CRDs", func() (*spec3.OpenAPI, error) {
			return builder.BuildOpenAPIV3(c, version, builder.Options{
				IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(apiextensionsfeatures.CustomResourceFieldSelectors),
			})
		})
		if err == nil { // as upstream: the others are described
			specs = append(specs, s)
		}
	}
	made, err := panicsAsErrors("describe CRDs", func() (*httptest.ResponseRecorder, error) {
		merged, err := builder.MergeSpecsV3(specs...)
		if err != nil {
			return nil, fmt.Errorf("merge descriptions of CRDs: %w", err)
		}
		service := handler3.NewOpenAPIService()
		service.UpdateGroupVersion(path, merged)
		plain := httptest.NewRequestWithContext(ctx, http.MethodGet, openAPIV3Path+"/"+path, http.NoBody)
		plain.Header["Accept"] = r.Header["Accept"]
		w := httptest.NewRecorder()
		service.HandleGroupVersion(w, plain)
		if w.Code == http.StatusOK && w.Body.Len() == 0 {
			return nil, errors.New("encode descriptions of CRDs")
		}
		return w, nil
	})
	if err == nil {
		err = refusal.Status(bounds.ReservationOf(ctx).Grow(int64(made.Body.Cap())), apiextensionsv1.Resource("customresourcedefinitions"), "")
	}
	return made, err
}

// documentCost is about what it takes to describe a version of a CRD.
func documentCost(c *apiextensionsv1.CustomResourceDefinition, version string, protobuf bool) int64 {
	var size int64
	for i := range c.Spec.Versions {
		if v := &c.Spec.Versions[i]; v.Name == version {
			size = heapsize.Of(v)
		}
	}
	if protobuf {
		return protobufDocumentBytes + protobufDocument*size
	}
	return documentBytes + documentFactor*size
}
