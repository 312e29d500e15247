// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// sharedTraces are the process's, which an API server that stops must not shut
// down.
type sharedTraces struct{ trace.TracerProvider }

// Shutdown does nothing.
func (sharedTraces) Shutdown(context.Context) error { return nil }

// traceTo has the handlers of an API server record spans, if there is a provider.
func traceTo(provider trace.TracerProvider, c *genericapiserver.Config) {
	if provider != nil {
		c.TracerProvider = sharedTraces{provider}
	}
}
