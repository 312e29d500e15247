// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storekeys lists the objects of a space by the keys that they would have in a store that all tenants share, as in the
// resource model of Alkaid: /registry/PLURAL/TENANT/NAMESPACE/NAME. The keys in the space's own store have no tenant (U7).
package storekeys
