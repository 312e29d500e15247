// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tlsalpn01 stands for lego's, as dns01 does.
package tlsalpn01

// ACMETLS1Protocol is the protocol by which certificates are asked for (RFC 8737).
const ACMETLS1Protocol = "acme-tls/1"
