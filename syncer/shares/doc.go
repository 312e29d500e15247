// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares writes what owners of a space share to the space's namespace on the host, as SharedObjects. The operator does the
// rest.
//
// It is called by package syncer. In a space that shares nothing, it costs one list request to the host for each start.
package shares
