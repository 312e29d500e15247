// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregation serves the API services of a space that its own pods
// serve: it calls them, tells whether they can be had, and adds what they offer
// to the space's discovery.
//
// It is called by vcluster, which takes these API services from upstream's
// aggregator: that one reads what their servers answer whole, into memory that
// all spaces share. Here each server is a tenant's, and hostile: what is read
// is bounded in bytes, in values and in time, and so is how many there are. What a
// client asks for passes through and is not kept.
//
// It does nothing, and holds nothing, until a space has such an API service. It
// never follows a redirect, and never dials but by the function that it is given.
package aggregation
