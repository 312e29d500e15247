// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/bounds"
)

const (
	openAPIV2Path = "/openapi/v2"
	openAPIV3Path = "/openapi/v3"
)

// Documents are the OpenAPI documents of a process. Those of the built-in APIs
// are a third of what a server takes if each has its own, and those that hold
// CRDs, too, are the same in all spaces with the same CRDs. Upstream's
// aggregator, which would make and keep both in each server and ask each server
// of the chain every second whether it has changed, is not run.
type Documents struct {
	// Builtin makes those of the built-in APIs.
	Builtin func() http.Handler

	mu     sync.Mutex                      // held while the shared ones are made
	shared atomic.Pointer[sharedDocuments] // nil until somebody asks for one
}

// sharedDocuments are what is the same in all spaces. They do not change.
type sharedDocuments struct {
	v2 *mergedDocuments
	v3 []part
}

// part is a handler that knows some documents of version 3.
type part struct {
	handler http.Handler
	paths   map[string]handler3.OpenAPIV3DiscoveryGroupVersion
}

// Add has first, the first server of a chain, serve them. extensions is the chain's server of CRDs. Both are described by c. What is
// shared is made when it is first asked for, as that takes as long as ten starts of a space, and most processes are never asked.
func (d *Documents) Add(
	first, extensions *genericapiserver.GenericAPIServer, c *genericapiserver.Config, crds crdinformers.CustomResourceDefinitionInformer,
	a *bounds.Account,
) *SpaceDocuments {
	own := &SpaceDocuments{user: newDocumentUser(a), crds: crds}
	own.shared = func() (*sharedDocuments, error) {
		if made := d.shared.Load(); made != nil {
			return made, nil
		}
		return d.get(first, extensions, c)
	}
	own.made = d.shared.Load
	m := first.Handler.NonGoRestfulMux
	m.HandleFunc(openAPIV2Path, own.serveV2)
	m.HandleFunc(openAPIV3Path, own.serveV3Root)
	m.HandlePrefix(openAPIV3Path+"/", http.HandlerFunc(own.serveV3))
	return own
}

// get makes what is shared, if no other has. It keeps nothing of the servers.
func (d *Documents) get(first, extensions *genericapiserver.GenericAPIServer, c *genericapiserver.Config) (*sharedDocuments, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if made := d.shared.Load(); made != nil {
		return made, nil
	}
	firstV2, firstHandler := describeServer(first, c)
	crdsV2, crdsHandler := describeServer(extensions, c)
	builtin := d.Builtin()
	builtinV2, err := download(builtin)
	if err != nil {
		return nil, err
	}
	shared := &sharedDocuments{}
	if shared.v2, err = newMergedDocuments(firstV2, builtinV2, crdsV2); err != nil {
		return nil, err
	}
	for _, h := range []http.Handler{firstHandler, builtin, crdsHandler} {
		paths, err := rootOf(h)
		if err != nil {
			return nil, err
		}
		shared.v3 = append(shared.v3, part{h, paths})
	}
	d.shared.Store(shared)
	return shared, nil
}

// describeServer makes the documents of a server's own types.
func describeServer(s *genericapiserver.GenericAPIServer, c *genericapiserver.Config) (*spec.Swagger, http.Handler) {
	m := mux.NewPathRecorderMux("openapi")
	_, v2 := routes.OpenAPI{Config: c.OpenAPIConfig}.InstallV2(s.Handler.GoRestfulContainer, m)
	routes.OpenAPI{V3Config: c.OpenAPIV3Config}.InstallV3(s.Handler.GoRestfulContainer, m)
	return v2, m
}

// panicsAsErrors calls f, which works on what a tenant wrote.
func panicsAsErrors[T any](doing string, f func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v", doing, p)
		}
	}()
	return f()
}
