// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"net/http"
	"sync"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
)

const (
	openAPIV2Path = "/openapi/v2"
	openAPIV3Path = "/openapi/v3"
)

// builtinOpenAPI serves the OpenAPI documents of the built-in APIs. They are the
// same in every space, and a third of what a server takes if each has its own.
// The first server that starts makes them. Documents of CRDs are each server's
// own.
type builtinOpenAPI struct {
	once sync.Once
	mux  http.Handler
}

var sharedOpenAPI = sync.OnceValue(func() *builtinOpenAPI { return &builtinOpenAPI{} })

// serve has the built-in APIs' server s answer with the shared documents. s must
// not install its own: SkipOpenAPIInstallation.
func (b *builtinOpenAPI) serve(s *genericapiserver.GenericAPIServer, c *genericapiserver.Config) {
	b.once.Do(func() {
		m := mux.NewPathRecorderMux("builtin-openapi")
		// They keep what they are built from, and nothing of the server.
		routes.OpenAPI{Config: c.OpenAPIConfig}.InstallV2(s.Handler.GoRestfulContainer, m)
		routes.OpenAPI{V3Config: c.OpenAPIV3Config}.InstallV3(s.Handler.GoRestfulContainer, m)
		b.mux = m
	})
	s.Handler.NonGoRestfulMux.Handle(openAPIV2Path, b.mux)
	s.Handler.NonGoRestfulMux.Handle(openAPIV3Path, b.mux)
	s.Handler.NonGoRestfulMux.HandlePrefix(openAPIV3Path+"/", b.mux)
}
