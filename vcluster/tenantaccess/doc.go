// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenantaccess has what the API server of a space needs to serve TenantAccess objects as it serves its own: their scheme,
// validation, and columns.
//
// The shared handler tree calls it. It decides on no request: package access does.
package tenantaccess
