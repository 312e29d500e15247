// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package services syncs Services and their endpoints, and what exposes them: Ingresses, Gateways, and HTTPRoutes.
//
// It also gives Services what only the host can allocate, before the space stores them: [Addresses] reserves cluster
// IPs and node ports for one Service, and adopts the host Services of a space that is restored. What routes requests
// from outside into a space must not route them out of it again: see expose.go and backends.go.
package services
