// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the API endpoint, one TLS listener in front of all API servers: it routes
// /spaces/NAME/... to the space of that name, and a path without that prefix to
// the space that issued the client's certificate. The space's API server then
// authenticates the client. Beside it is the endpoint for spaces' own pods, whose requests name no
// space: the address that they come from does (pods.go). Routing authorizes nothing.
// Commands run it; it stores nothing.
package gateway
