// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostaccount hands the proven identity of a ServiceAccount of the host to a space's API server, in the context of the
// request. The platform sets it after the host has reviewed the token, which goes no further (O9). Nothing in a request that a client
// sends leads to it.
package hostaccount

import "context"

type key struct{}

// With returns a context of requests of a ServiceAccount of the host. name has the form system:serviceaccount:NAMESPACE:NAME.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// From returns the ServiceAccount of the host that makes the request of ctx; "" if none does.
func From(ctx context.Context) (name string) {
	name, _ = ctx.Value(key{}).(string)
	return name
}
