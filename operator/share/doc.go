// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package share publishes what tenants share with the tenants below. It reads the SharedObjects in the namespaces of spaces on the
// host, checks them, and writes a PublishedObject for each. Package publication names them in the Spaces that receive them.
//
// A SharedObject is written by the process of a space, which its tenant may have taken over. Nothing in it is trusted: neither what
// the object is, nor who receives it beyond the tenant's own tree, nor how many there are.
package share
