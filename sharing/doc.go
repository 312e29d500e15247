// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharing decides what a tenant may share with the tenants below: which objects, by which names, and which spaces receive
// them.
//
// A space applies these rules when somebody labels an object. The operator applies them again, because it doesn't trust what the
// process of a space writes. The package consists of pure functions, and has no clients.
package sharing
