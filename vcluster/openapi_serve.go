// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	genericapiserver "k8s.io/apiserver/pkg/server"
)

const (
	openAPIV2Path = "/openapi/v2"
	openAPIV3Path = "/openapi/v3"
)

// serveOpenAPI has the built-in APIs' server s answer with the shared documents,
// which are a third of what a server takes if each has its own. s must not
// install its own: SkipOpenAPIInstallation. Documents of CRDs are each server's
// own.
func (a *sharedAPI) serveOpenAPI(s *genericapiserver.GenericAPIServer) {
	s.Handler.NonGoRestfulMux.Handle(openAPIV2Path, a.openAPI)
	s.Handler.NonGoRestfulMux.Handle(openAPIV3Path, a.openAPI)
	s.Handler.NonGoRestfulMux.HandlePrefix(openAPIV3Path+"/", a.openAPI)
}
