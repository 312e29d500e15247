// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaration turns a ResourceSync into functions: what an object of a tenant is on the host, what of the host's status returns to
// the space, and what a space shows of an object of the host. It has no clients and no state.
//
// - declaration.go: [Compile] checks a ResourceSync against the definition of its resource.
// - tree.go: the fields as a tree.
// - tohost.go: [Declaration.ToHost] and [Declaration.Update].
// - fromhost.go: [Declaration.Status] and [Declaration.Show].
//
// All that is not declared stays where it is: a tenant's object with another field is refused, and of the host's objects nothing else is shown.
package declaration
