// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owners finds the effective owners and role bindings of a tenant: those of its spec, those that its permissions select,
// and those that it inherits from the tenants above it. It is pure: it has no clients and no clocks.
package owners
