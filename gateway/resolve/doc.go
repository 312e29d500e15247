// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resolve finds the space that a URL is for, and the path inside the space. It is a pure function of the path and of
// the client's own tenant. The gateway calls it once for each request.
//
// It authorizes nothing, does no I/O, and does not link the API server, so that it can be fuzzed.
package resolve
