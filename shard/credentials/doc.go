// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credentials checks whether a request has a credential of a space, by the signature, so that it works while the
// space sleeps. Certificates of former owners are rejected, too. Whether another credential was revoked, and what it
// allows, is decided by the space's API server when the space is awake.
//
// Package shard calls it for each request from outside. It authorizes nothing and writes no file. It does not link the
// API server, so that it can be fuzzed.
package credentials
