// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podconn takes connections from spaces' pods, and from nobody else. It
// tells by the source address which space each is of, and keeps each space to
// its share of them. Servers that pods reach directly listen through it; it
// authorizes nothing, as an address is no credential.
package podconn
