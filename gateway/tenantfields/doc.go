// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenantfields has the fields of full paths (U5): it adds metadata.tenant and metadata.selfLink to the JSON of
// responses, and checks metadata.tenant in the JSON of requests and removes it. The gateway wraps the handler of a space with
// it for each request whose path names a tenant.
//
// It changes nothing else: the other bytes of a document are those of the client or of the API server. It streams: it holds a
// few kilobytes of a document, and up to 64 KiB of a JSON patch, for each request, and the gateway limits how many requests a
// space has. The JSON packages of Go's library hold whole strings and can't be
// stopped between two writes, or write documents in another form than they read. So this package has a scanner of its own.
//
// It authorizes nothing, and leaves documents alone that it can't read.
package tenantfields
