// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifest applies objects of Berth's API that are in files: `berth apply` calls it, by which the chart's values become
// Tenants and the BerthConfiguration.
//
// It applies no other objects, and deletes none. [Documents] also splits files of other objects, for `berth sync-policy`.
package manifest
