// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ext stands for a module of Traefik's that lies in its repository alone,
// and is no part of what a module proxy has: what other editions add to its
// configuration. Here that is nothing.
package ext

type (
	// HTTP is what is added to the configuration of HTTP.
	HTTP struct{}
	// Router is what is added to a router's.
	Router struct{}
)
