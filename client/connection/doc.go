// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connection connects the caller of a command to a space: it finds the space's kubeconfig, forwards a port of this
// machine to Berth if the address in the kubeconfig can't be reached, and writes the kubeconfig to where clients read it.
// Commands call it. It issues no credentials.
package connection
