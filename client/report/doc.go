// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report renders tenants and spaces as text for people: the tree of tenants, bars of usage against limits, and
// descriptions. Its functions are pure. Commands call them with what they have read from the host.
package report
