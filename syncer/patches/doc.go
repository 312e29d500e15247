// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patches changes host pods as spec.patches of a Space say, which an admin writes. Package pods of the syncer applies them after all
// else that Berth does to a pod. The package doesn't decide what a pod may be: the account of the space writes the result, and the
// host's admission policies judge it like any pod of a tenant.
package patches
