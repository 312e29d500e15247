// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the API endpoint: one TLS listener in front of all API servers. It routes /spaces/NAME/... to the
// space NAME, and a path without that prefix to the space that issued the client's certificate. The API server of the
// space authenticates the client.
//
// The package also has the endpoint for spaces' own pods (pods.go). Their requests name no space; the source address
// identifies it.
//
// Routing authorizes nothing. Commands run the package; it stores nothing.
package gateway
