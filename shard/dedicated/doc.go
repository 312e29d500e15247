// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dedicated runs a space in a process of its own (T9), with the same
// code and the same data as one that shares a process: [Process] is the side of
// `berth up`, which starts the process again when it ends, and leads requests
// and commands to it; [Serve] is the side of the process itself, a shard with
// one space.
//
// The two speak HTTP over unix sockets in a directory that only their user may
// enter, or if the process runs elsewhere, over mutual TLS with certificates of a
// CA of the platform's own. The clients' TLS ends in `berth up`: the client certificate
// that came with a request goes along in a header, which is believed on that channel
// alone, and which clients cannot send. Who a request is from, the space's API server
// decides.
package dedicated
