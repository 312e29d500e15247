// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit records the requests of tenants as Kubernetes' own audit events, with the space, the tenants of the space and of the client,
// and the original user. What is recorded goes to a file of the tenant, and to webhooks: that of the platform, and that of the tenant.
//
// Events have no bodies: a policy that asks for them gets the metadata. What an event holds of a client, and how many events wait for a
// webhook, is bounded.
package audit
