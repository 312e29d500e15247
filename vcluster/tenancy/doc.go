// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenancy enforces in a control plane what package access decides: an authorizer before RBAC, an admission plugin, and the
// end of long requests of those whose rights have changed. What keeps the objects is in package keeper.
//
// It is called by vcluster. It decides nothing itself, and reads the state anew for each request.
package tenancy
