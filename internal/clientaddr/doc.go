// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clientaddr counts what client addresses hold of something that must not run out: connections, or checks of
// signatures. Servers that anybody can reach use it before they know who calls. It makes no decision by an address alone.
package clientaddr
