// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the configuration file of the platform, in the group config.berth.dev: what `berth up` and
// `berth serve` read with --config. It is no API object: nothing serves it.
//
// The package holds types and generated code. It holds no logic, and imports nothing of Berth but the API's types.
//
// +groupName=config.berth.dev
// +kubebuilder:object:generate=true
package v1alpha1

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object:headerFile=../../../hack/boilerplate.go.txt paths=.
