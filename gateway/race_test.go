// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package gateway_test

func init() { underRace = true }
