// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// SpaceDocuments are those of a space: the shared ones, and those of version 3 that describe its CRDs.
type SpaceDocuments struct {
	shared func() (*sharedDocuments, error) // makes them, if nobody has
	made   func() *sharedDocuments          // nil if nobody has
	user   *documentUser
	crds   crdinformers.CustomResourceDefinitionInformer
	// Aggregated lists those of version 3 that pods serve: asked for, they are
	// passed on and not kept.
	Aggregated func() []string
}

// Close drops what is kept for the space.
func (d *SpaceDocuments) Close() {
	d.user.gone.Store(true) // also for requests that have not ended yet
	if shared := d.made(); shared != nil {
		shared.v2.kept.leave(d.user)
	}
}

func (d *SpaceDocuments) serveV2(w http.ResponseWriter, r *http.Request) {
	crds, err := d.crds.Lister().List(labels.Everything())
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	shared, err := d.shared()
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	h, err := shared.v2.handler(r.Context(), d.user, crds)
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	if err := bounds.ReservationOf(r.Context()).Grow(servedCost(crds)); err != nil {
		refusal.Serve(w, r, fmt.Errorf("describe all CRDs in one document; those of %s are smaller: %w", openAPIV3Path, refusal.Status(err, apiextensionsv1.Resource("customresourcedefinitions"), "")))
		return
	}
	h.ServeHTTP(w, r)
}

func (d *SpaceDocuments) serveV3Root(w http.ResponseWriter, r *http.Request) {
	paths, err := d.crdRoots()
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	shared, err := d.shared()
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	root := handler3.OpenAPIV3Discovery{Paths: paths}
	for _, p := range shared.v3 {
		maps.Copy(root.Paths, p.paths)
	}
	for _, path := range d.Aggregated() {
		if _, ok := root.Paths[path]; !ok {
			root.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: openAPIV3Path + "/" + path}
		}
	}
	body, err := json.Marshal(&root)
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	http.ServeContent(w, r, openAPIV3Path, time.Now(), bytes.NewReader(body))
}

func (d *SpaceDocuments) serveV3(w http.ResponseWriter, r *http.Request) {
	group := r.URL.Path[len(openAPIV3Path)+1:]
	if !mayBeBuiltin(group) {
		d.serveCRDs(w, r, group)
		return
	}
	shared, err := d.shared()
	if err != nil {
		refusal.Serve(w, r, err)
		return
	}
	for _, p := range shared.v3 {
		if _, ok := p.paths[group]; ok {
			p.handler.ServeHTTP(w, r)
			return
		}
	}
	d.serveCRDs(w, r, group)
}

// mayBeBuiltin reports whether a document may be one of those that all spaces share. It is false for the group versions of most CRDs, so
// that nobody who asks for these waits until the shared documents are made.
func mayBeBuiltin(path string) bool {
	group, version, isVersion := strings.Cut(strings.TrimPrefix(path, "apis/"), "/")
	if !isVersion || !strings.HasPrefix(path, "apis/") {
		return true
	}
	return slices.ContainsFunc(builtinSchemes(), func(s *runtime.Scheme) bool {
		return s.IsVersionRegistered(schema.GroupVersion{Group: group, Version: version})
	})
}

// download reads a handler's document of version 2 as upstream's aggregator does.
func download(h http.Handler) (*spec.Swagger, error) {
	document := &spec.Swagger{}
	body, err := fetch(h, openAPIV2Path)
	if err == nil {
		err = document.UnmarshalJSON(body)
	}
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	return document, nil
}

// rootOf lists a handler's documents of version 3.
func rootOf(h http.Handler) (map[string]handler3.OpenAPIV3DiscoveryGroupVersion, error) {
	var root handler3.OpenAPIV3Discovery
	body, err := fetch(h, openAPIV3Path)
	if err == nil {
		err = json.Unmarshal(body, &root)
	}
	if err != nil {
		return nil, fmt.Errorf("list OpenAPI documents: %w", err)
	}
	return root.Paths, nil
}

func fetch(h http.Handler, path string) ([]byte, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept", "application/json")
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %d", path, w.Code)
	}
	return w.Body.Bytes(), nil
}
