// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway is the API endpoint: one TLS listener in front of all API servers. It routes each request to the space that
// package resolve finds in the path, or else to the space that issued the client's certificate or token. The API server of
// the space authenticates the client.
//
// The package also has the endpoint for spaces' own pods (pods.go). Their requests name no space; the source address
// identifies it.
//
// Routing authorizes nothing. Commands run the package; it stores nothing.
package gateway
