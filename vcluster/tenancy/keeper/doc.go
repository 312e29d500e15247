// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keeper keeps the objects that a tenant's space has by its state: role bindings, limit ranges, network policies, labels of
// namespaces, and copies of published objects. It creates what is missing, repairs what differs, and deletes what is left of an
// earlier state.
//
// It is called by vcluster, and runs while the control plane does. It neither decides on requests nor wakes a space, and costs a space
// without a tenant nothing. Rights don't depend on it: the role bindings only show them.
package keeper
