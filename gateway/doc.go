// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the one TLS port in front of all API servers: it routes
// /spaces/NAME/... to the space of that name, and a path without that prefix to
// the space that issued the client's certificate. The space's API server then
// finds out who asks. Beside it is the port for spaces' own pods, who name no space: it is
// told by the address that they call from (pods.go). Routing authorizes nothing.
// Commands run it; it stores nothing.
package gateway
