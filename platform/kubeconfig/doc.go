// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig issues the kubeconfigs of spaces, and of an embedded host, from the keys in a data directory; it renews
// those that are files there, and copies them into Secrets of the host. A platform may run on the directory or not.
package kubeconfig
