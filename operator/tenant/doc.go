// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant reconciles Tenants: it accepts them in the tree, creates the space of each, gives all spaces of a tenant what the
// tenant says, and keeps the status. A deleted tenant takes its spaces along, and on request all tenants below it.
//
// A reconcile is a list of steps, each in a file of its own. Each step writes only what differs, and each write may be the last one
// before a crash: the next reconcile begins with what is there. The platform and the tenant's users are never asked.
package tenant
