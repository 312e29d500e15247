// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares writes what owners of a space share to the space's namespace on the host, as SharedObjects. The operator does the
// rest.
//
// It is called by package syncer. In a space that shares nothing, each start costs one list request to the host, and a scan of the
// values of nine resources in the store of the space for the label.
package shares
