// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes syncs classes in both directions: spaces import those that the admin selected, and Berth exports
// those of tenants to the host. It also resolves the class of a pod or claim to the class on the host.
package classes
