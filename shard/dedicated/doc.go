// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dedicated runs a space in a process of its own (T9), with the same code and data as a space in the shared
// process. [Process] is the platform's side: it restarts the process when it ends, and forwards requests and commands
// to it. [Serve] is the side of the process, which is a shard with one space.
//
// They communicate by HTTP over unix sockets in a directory that only their user can enter. If the process runs
// elsewhere, they use mutual TLS with certificates of the platform's own CA. Clients' TLS connections end at the
// platform. It forwards the client certificate of a request in a header, which is trusted only on this channel, and
// which clients can't send. The space's API server authenticates the request.
package dedicated
