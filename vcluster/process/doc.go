// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process sets what Kubernetes keeps once for a process, and so for all spaces in it: feature gates, what ends
// a process, and metrics.
//
// It is called by vcluster before the first control plane starts.
package process
