// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API objects of Berth that tenants write in their spaces, in the group access.berth.dev. It is not that of the objects on the host, berth.dev, whose definitions an embedded host or
// a tenant may have. The API server of each
// space serves them itself: there is no CustomResourceDefinition of them.
//
// The package holds types, and generated code: the schema has the form of a CustomResourceDefinition, because one generator writes both.
//
// +groupName=access.berth.dev
// +kubebuilder:object:generate=true
package v1alpha1

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object:headerFile=../../../hack/boilerplate.go.txt crd:crdVersions=v1 paths=. output:crd:dir=.
