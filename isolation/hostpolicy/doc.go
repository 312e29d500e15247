// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostpolicy is what a host's ValidatingAdmissionPolicies hold the
// accounts of spaces to, as expressions in CEL. It denies by default: an account
// may write the fields that package translate writes, with the values that it
// writes, and nothing else. It trusts nothing that Berth does before it writes.
//
// For resources that ResourceSyncs sync, the policy is made of their declaration: [Declared].
//
// Package isolation puts the policies onto the host, and the chart renders them. The
// package has no clients.
package hostpolicy
