// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package schemas bounds what CustomResourceDefinitions make an API server hold and compute. It is for vcluster, which
// checks definitions before upstream validates them: validation compiles patterns already.
//
// It never compiles a pattern itself.
package schemas
