// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inside tells requests that Berth itself makes in a space from those
// that come in from outside. A name cannot: a tenant who is admin of its space
// may impersonate any. The loopback marks the contexts of its requests;
// admission asks.
package inside

import "context"

type key struct{}

// Mark returns a context under which requests count as Berth's own.
func Mark(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether the request of ctx is Berth's own.
func Is(ctx context.Context) bool {
	marked, _ := ctx.Value(key{}).(bool)
	return marked
}

type keeperKey struct{}

// MarkKeeper returns a context under which requests of Berth's own are those that keep the objects of the space's tenant. No webhook,
// policy or quota of a user can stop them.
func MarkKeeper(ctx context.Context) context.Context {
	return context.WithValue(ctx, keeperKey{}, true)
}

// IsKeeper reports whether the request of ctx is Berth's own and keeps objects. A mark alone is not enough: only requests in process
// have contexts that others make.
func IsKeeper(ctx context.Context) bool {
	marked, _ := ctx.Value(keeperKey{}).(bool)
	return marked && Is(ctx)
}

type collectorKey struct{}

// MarkCollector returns a context under which requests of Berth's own are the garbage collector's.
func MarkCollector(ctx context.Context) context.Context {
	return context.WithValue(ctx, collectorKey{}, true)
}

// IsCollector reports whether the request of ctx is Berth's own and the garbage collector's.
func IsCollector(ctx context.Context) bool {
	marked, _ := ctx.Value(collectorKey{}).(bool)
	return marked && Is(ctx)
}
