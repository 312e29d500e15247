// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API objects of Berth on the host cluster, in the group berth.dev. Platform admins write them
// with kubectl or Helm; the platform serves what they say, and writes their statuses.
//
// The package holds types, with defaults and validation as markers, and generated code. It holds no logic, and imports
// nothing of Berth.
//
// The packages below api/applyconfiguration have the same types for server-side apply, with all fields optional. The
// reference, docs/reference/api.md, is generated from the definitions.
//
// +groupName=berth.dev
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=../applyconfiguration
package v1alpha1

//go:generate go tool -modfile=../../hack/tools/go.mod controller-gen object:headerFile=../../hack/boilerplate.go.txt crd:crdVersions=v1 applyconfiguration:headerFile=../../hack/boilerplate.go.txt paths=. output:crd:dir=../crds
//go:generate go run ../../hack/apireference ../../examples ../../docs/reference/api.md
