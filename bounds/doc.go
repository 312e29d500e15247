// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bounds is the one place for everything that a tenant can make grow in a process that many tenants share: what it
// is called, its limit, how much of it a space uses now, and what a tenant reads when the limit is reached.
//
// A [Quantity] is a row of [Table], and of docs/reference/limits.md, which a test holds to it. [Limits] are what one space may use;
// the zero value is the defaults. An [Account] holds what one space uses now: whoever takes something on behalf of a
// space takes it from the space's account first, and gives it back when it is done.
//
// The package knows no clients, no clocks and no Kubernetes kinds, so that every other package can import it.
package bounds
