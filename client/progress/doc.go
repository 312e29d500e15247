// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress waits until tenants and spaces are as a command wants them, and prints what it waits for. Commands call
// it. It only reads.
package progress
