// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstream carries a call of exec, attach or port forwarding between a
// client, which speaks SPDY or WebSocket in any of the versions that Kubernetes
// has had, and a host, which is spoken to by SPDY only. A space's API server
// serves such calls with it.
//
// It carries frames, and keeps no more of any than a part: who does not read is
// not read from. To the host go data, and streams whose headers were parsed and
// made anew; from the host come data, and what it says of failures, which is put
// into the client's words first (N1). Since a host is asked by SPDY before the
// client is answered, what it refuses is an answer, and not a stream.
//
// Clients are tenants, and all spaces of a process share its memory. The server
// of SPDY that container runtimes use is not meant for that: it sets aside what
// a frame announces, up to 16 MB for each of hundreds, starts a goroutine for each
// stream that it refuses, leaves those of clients that open one too many, and has
// a compressor of 1 MB for headers of 100 bytes. Only its parser of frames is used,
// within bounds, for the few frames that are parsed.
//
// It authorizes nothing, and opens no network connection: [Dial] speaks over one
// that it is handed. A pod is a name to it, for the client's words.
package podstream
