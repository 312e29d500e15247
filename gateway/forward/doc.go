// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forward carries requests from the shard that a client has reached to the shard that has its space, by HTTP/2 and mutual TLS.
// The receiving shard gets the request as the client sent it, with the client's address and certificate, which travel as values in
// headers of their own: no client can send these, because the forwarding shard replaces them, and nobody but a shard can connect.
package forward
