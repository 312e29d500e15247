// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credentials finds out whether a request bears a credential of a space, even while the space sleeps: by the
// signature alone. Whether the credential was revoked since, and what its bearer may do, the space's API server decides
// once it is awake.
//
// Package shard calls it for each request from outside. It authorizes nothing, and writes no file. It does not link the
// API server, so that it can be fuzzed.
package credentials
