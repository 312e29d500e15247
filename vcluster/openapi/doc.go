// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi serves the OpenAPI documents of a space: those of the built-in APIs, which all spaces of a process
// share, with the space's CRDs. Documents of CRDs are made when they are asked for, and bounded, as tenants choose how
// large they are.
//
// It is called by vcluster. It keeps a document for each space at most, which its account holds.
package openapi
