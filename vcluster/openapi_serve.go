// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	openapidownload "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	openapimerge "k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/lru"
)

const (
	openAPIV2Path = "/openapi/v2"
	openAPIV3Path = "/openapi/v3"

	// mergedDocuments is how many different documents of version 2 are kept, at
	// some 25 MiB each: one for all spaces without CRDs, and one for each set of
	// CRDs that a client lately asked about.
	mergedDocuments = 4
)

// documents are the OpenAPI documents of a process. Those of the built-in APIs
// are a third of what a server takes if each has its own, and those that hold
// CRDs, too, are the same in all spaces with the same CRDs. Upstream's
// aggregator, which would make and keep both in each server and ask each server
// of the chain every second whether it has changed, is not run.
type documents struct {
	builtin http.Handler

	once          sync.Once
	v2            []*spec.Swagger // of the aggregator, of the built-in APIs, of CRDs themselves
	v3            []part
	describedCRDs *spec.Swagger // what the space's own are added to
	err           error

	mu     sync.Mutex // one document is made at a time
	merged *lru.Cache // by the ETag of what CRDs add
}

// part is a handler that knows some documents of version 3.
type part struct {
	handler http.Handler
	paths   map[string]handler3.OpenAPIV3DiscoveryGroupVersion
}

func newDocuments(builtin http.Handler) *documents {
	return &documents{builtin: builtin, merged: lru.New(mergedDocuments)}
}

// add has first, the first server of a chain, serve them. extensions is the
// chain's server of CRDs. Both are described by c.
func (d *documents) add(
	first, extensions *genericapiserver.GenericAPIServer, c *genericapiserver.Config, crds crdinformers.CustomResourceDefinitionInformer,
) (*spaceDocuments, error) {
	d.once.Do(func() { d.err = d.describeShared(first, extensions, c) })
	if d.err != nil {
		return nil, d.err
	}
	own := &spaceDocuments{documents: d, crds: crds}
	m := first.Handler.NonGoRestfulMux
	m.HandleFunc(openAPIV2Path, own.serveV2)
	m.HandleFunc(openAPIV3Path, own.serveV3Root)
	m.HandlePrefix(openAPIV3Path+"/", http.HandlerFunc(own.serveV3))
	return own, nil
}

// describeShared makes what is the same in all spaces. It keeps nothing of the
// servers.
func (d *documents) describeShared(first, extensions *genericapiserver.GenericAPIServer, c *genericapiserver.Config) error {
	builtin, err := download(d.builtin)
	if err != nil {
		return err
	}
	d.v2 = []*spec.Swagger{nil, builtin, nil}
	handlers := []http.Handler{nil, d.builtin, nil}
	for i, s := range map[int]*genericapiserver.GenericAPIServer{0: first, 2: extensions} {
		m := mux.NewPathRecorderMux("openapi")
		_, d.v2[i] = routes.OpenAPI{Config: c.OpenAPIConfig}.InstallV2(s.Handler.GoRestfulContainer, m)
		routes.OpenAPI{V3Config: c.OpenAPIV3Config}.InstallV3(s.Handler.GoRestfulContainer, m)
		handlers[i] = m
	}
	for _, h := range handlers {
		paths, err := rootOf(h)
		if err != nil {
			return err
		}
		d.v3 = append(d.v3, part{h, paths})
	}
	// Servers that are delegated to are read over HTTP, upstream, too, which puts
	// some things in another order.
	d.describedCRDs = d.v2[2]
	d.v2[2], err = download(handlers[2])
	return err
}

// handlerV2 returns what serves the shared documents with extensions, which is
// what CRDs themselves and those of a space are described by. etag is its own.
func (d *documents) handlerV2(etag string, extensions func() (*spec.Swagger, error)) (http.Handler, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kept, ok := d.merged.Get(etag); ok {
		return kept.(http.Handler), nil //nolint:forcetypeassert // Nothing else is put in.
	}
	last, err := extensions()
	if err != nil {
		return nil, err
	}
	// As upstream's aggregator does.
	merged := *d.v2[0]
	merged.Paths, merged.Definitions, merged.Parameters = nil, nil, nil
	for _, s := range []*spec.Swagger{d.v2[0], d.v2[1], last} {
		if err := openapimerge.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&merged, s); err != nil {
			return nil, fmt.Errorf("merge OpenAPI documents: %w", err)
		}
	}
	m := mux.NewPathRecorderMux("merged-openapi")
	handler.NewOpenAPIService(&merged).RegisterOpenAPIVersionedService(openAPIV2Path, m)
	d.merged.Add(etag, m)
	return m, nil
}

// spaceDocuments are those of a space: the shared ones, and from when it first
// has CRDs, its own.
type spaceDocuments struct {
	*documents
	crds crdinformers.CustomResourceDefinitionInformer
	own  atomic.Pointer[mux.PathRecorderMux] // nil before
}

// run describes the space's CRDs, if there ever are some, until ctx ends.
func (d *spaceDocuments) run(ctx context.Context) {
	first := make(chan struct{})
	found := sync.OnceFunc(func() { close(first) })
	registered, err := d.crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { found() }})
	if err != nil {
		return // the informer has stopped
	}
	select {
	case <-ctx.Done():
		return
	case <-first:
	}
	_ = d.crds.Informer().RemoveEventHandler(registered)

	v2, v3 := handler.NewOpenAPIService(d.describedCRDs), handler3.NewOpenAPIService()
	m := mux.NewPathRecorderMux("crd-openapi")
	v2.RegisterOpenAPIVersionedService(openAPIV2Path, m)
	if err := v3.RegisterOpenAPIV3VersionedService(openAPIV3Path, m); err != nil {
		klog.FromContext(ctx).Error(err, "Describing CRDs")
		return
	}
	var controllers sync.WaitGroup
	controllers.Go(func() { openapi.NewController(d.crds).Run(d.describedCRDs, v2, ctx.Done()) })
	controllers.Go(func() { openapiv3.NewController(d.crds).Run(v3, ctx.Done()) })
	d.own.Store(m)
	controllers.Wait()
}

func (d *spaceDocuments) serveV2(w http.ResponseWriter, r *http.Request) {
	var h http.Handler
	var err error
	if own := d.own.Load(); own != nil {
		h, err = d.handlerV2(fetch(own, openAPIV2Path).Header().Get("ETag"), func() (*spec.Swagger, error) { return download(own) })
	} else {
		h, err = d.handlerV2("", func() (*spec.Swagger, error) { return d.v2[2], nil })
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.ServeHTTP(w, r)
}

func (d *spaceDocuments) serveV3Root(w http.ResponseWriter, r *http.Request) {
	root := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	if own := d.own.Load(); own != nil {
		paths, err := rootOf(own)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		maps.Copy(root.Paths, paths)
	}
	for _, p := range d.v3 {
		maps.Copy(root.Paths, p.paths)
	}
	body, err := json.Marshal(&root)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, openAPIV3Path, time.Now(), bytes.NewReader(body))
}

func (d *spaceDocuments) serveV3(w http.ResponseWriter, r *http.Request) {
	group := r.URL.Path[len(openAPIV3Path)+1:]
	for _, p := range d.v3 {
		if _, ok := p.paths[group]; ok {
			p.handler.ServeHTTP(w, r)
			return
		}
	}
	if own := d.own.Load(); own != nil {
		own.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

func download(h http.Handler) (*spec.Swagger, error) {
	downloader := openapidownload.NewDownloader()
	document, _, _, err := downloader.Download(h, "")
	if err != nil {
		return nil, fmt.Errorf("read OpenAPI document: %w", err)
	}
	return document, nil
}

// rootOf lists a handler's documents of version 3.
func rootOf(h http.Handler) (map[string]handler3.OpenAPIV3DiscoveryGroupVersion, error) {
	var root handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(fetch(h, openAPIV3Path).Body.Bytes(), &root); err != nil {
		return nil, fmt.Errorf("list OpenAPI documents: %w", err)
	}
	return root.Paths, nil
}

func fetch(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header.Set("Accept", "application/json")
	h.ServeHTTP(w, r)
	return w
}
