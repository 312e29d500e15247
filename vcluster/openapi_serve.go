// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
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

	once       sync.Once
	aggregator http.Handler    // of the aggregator's own types
	v2         []*spec.Swagger // the aggregator's and the built-in ones
	v3         []part
	err        error

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

// add has s, the first server of a chain, serve them. Its types are described
// by its configuration c. extensions is the server of CRDs, to which only the
// space's own are added.
func (d *documents) add(
	s *genericapiserver.GenericAPIServer, c *genericapiserver.Config,
	extensions *genericapiserver.GenericAPIServer, crds apiextensionslisters.CustomResourceDefinitionLister,
) error {
	d.once.Do(func() { d.err = d.describeShared(s, c) })
	if d.err != nil {
		return d.err
	}
	own := &spaceDocuments{documents: d, extensions: extensions.Handler.NonGoRestfulMux, crds: crds}
	m := s.Handler.NonGoRestfulMux
	m.HandleFunc(openAPIV2Path, own.serveV2)
	m.HandleFunc(openAPIV3Path, own.serveV3Root)
	m.HandlePrefix(openAPIV3Path+"/", http.HandlerFunc(own.serveV3))
	return nil
}

// describeShared makes what is the same in all spaces. It keeps nothing of s.
func (d *documents) describeShared(s *genericapiserver.GenericAPIServer, c *genericapiserver.Config) error {
	m := mux.NewPathRecorderMux("aggregator-openapi")
	_, own := routes.OpenAPI{Config: c.OpenAPIConfig}.InstallV2(s.Handler.GoRestfulContainer, m)
	routes.OpenAPI{V3Config: c.OpenAPIV3Config}.InstallV3(s.Handler.GoRestfulContainer, m)
	builtin, err := download(d.builtin)
	if err != nil {
		return err
	}
	d.v2 = []*spec.Swagger{own, builtin}
	for _, h := range []http.Handler{m, d.builtin} {
		paths, err := rootOf(h)
		if err != nil {
			return err
		}
		d.v3 = append(d.v3, part{h, paths})
	}
	return nil
}

// mergeV2 merges documents as upstream's aggregator does, and returns what
// serves them. first comes before the shared ones' last.
func (d *documents) mergeV2(extensions *spec.Swagger) (http.Handler, error) {
	merged := *d.v2[0]
	merged.Paths, merged.Definitions, merged.Parameters = nil, nil, nil
	for _, s := range []*spec.Swagger{d.v2[0], d.v2[1], extensions} {
		if err := openapimerge.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&merged, s); err != nil {
			return nil, fmt.Errorf("merge OpenAPI documents: %w", err)
		}
	}
	m := mux.NewPathRecorderMux("merged-openapi")
	handler.NewOpenAPIService(&merged).RegisterOpenAPIVersionedService(openAPIV2Path, m)
	return m, nil
}

// spaceDocuments are those of a space.
type spaceDocuments struct {
	*documents
	extensions http.Handler
	crds       apiextensionslisters.CustomResourceDefinitionLister
}

func (d *spaceDocuments) serveV2(w http.ResponseWriter, r *http.Request) {
	h, err := d.v2Handler()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.ServeHTTP(w, r)
}

func (d *spaceDocuments) v2Handler() (http.Handler, error) {
	const none = ""
	crds, err := d.crds.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	etag := none
	if len(crds) > 0 {
		etag = fetch(d.extensions, openAPIV2Path).Header().Get("ETag")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if kept, ok := d.merged.Get(etag); ok {
		return kept.(http.Handler), nil //nolint:forcetypeassert // Nothing else is put in.
	}
	// Types of CRDs' own, and what the space's CRDs define.
	extensions, err := download(d.extensions)
	if err != nil {
		return nil, err
	}
	h, err := d.mergeV2(extensions)
	if err == nil {
		d.merged.Add(etag, h)
	}
	return h, err
}

func (d *spaceDocuments) serveV3Root(w http.ResponseWriter, r *http.Request) {
	root := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	own, err := rootOf(d.extensions)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	maps.Copy(root.Paths, own)
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
	d.extensions.ServeHTTP(w, r)
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
