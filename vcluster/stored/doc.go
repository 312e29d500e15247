// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stored answers questions about objects in the form in which an API server stores them. Each write of a space
// passes them, so they decode no more than they must. What can't be read counts as a yes: a controller that runs for
// nothing does no harm.
//
// Package vcluster calls it to find out which controllers a write is for. Packages fields and quantities read protobuf by it. It
// knows no controller, and does not link the API server, so that it can be fuzzed.
package stored
