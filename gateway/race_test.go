// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package gateway_test

// underRace tells whether the race detector is on.
const underRace = true
