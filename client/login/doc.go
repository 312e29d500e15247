// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login gets tokens of users from an OpenID Connect provider, in a browser or on another device, keeps them in files of the user,
// and refreshes them. It also writes the kubeconfig, which has no secret: it names a command that prints the token.
//
// Commands call it. It opens no browser and prints nothing by itself.
package login
