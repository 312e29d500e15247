// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator reconciles the objects by which admins describe tenants on the host: Tenants, their owners, and what holds for
// all of them. It writes Space objects, which platforms serve, and the status of Tenants.
//
// The commands `berth operator` and `berth up` run it. It uses the host's API only and never reads a space's, so that it wakes no
// space, and spaces work on without it.
package operator
