// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostapi is how commands reach the API of a host cluster: with the kubeconfig and the rights of the caller. It
// adds to errors what the caller can do about them. It keeps no state.
package hostapi
