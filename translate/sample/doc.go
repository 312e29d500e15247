// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sample has what the tests of translation draw and check: pods as tenants write them and as no API server would
// admit them, the space around them, and checks by reflection of what comes of them.
//
// Only the tests of package translate and of those below it call it.
package sample
