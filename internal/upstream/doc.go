// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upstream has the list of what of Kubernetes was reviewed for the version in go.mod, and a test that fails when another
// version has something else: controllers, post-start hooks, storage of resources, and messages of the scheduler and of kubelets.
// docs/contributing/upgrade-kubernetes.md says what to ask about each.
package upstream
