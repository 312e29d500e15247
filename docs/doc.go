// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs holds Berth's documentation, and the test that its links lead somewhere.
//
// Nothing calls it: it has no code but this test.
package docs
