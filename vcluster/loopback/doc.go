// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loopback calls the API of a control plane in process, with all rights, by handing requests to its gate:
// there is no socket.
//
// It is called by vcluster, for what runs with a control plane. Its requests count as Berth's own: see package inside.
// Its errors are shortened, as tenants can make them large.
package loopback
