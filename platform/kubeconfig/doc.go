// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig issues the kubeconfigs of spaces, and of an embedded host, with the keys in a data directory. It
// renews those in the directory, and copies them to Secrets of the host. It works whether a platform runs on the
// directory or not.
package kubeconfig
