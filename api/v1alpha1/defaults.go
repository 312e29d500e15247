// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DefaultPlatformName is the name of a platform, and of the one that a space is for, if none is said.
const DefaultPlatformName = "berth"

// Finalizer is on each Space that a platform serves, until nothing is left of what the platform made for it.
const Finalizer = "berth.dev/space"

// DefaultIgnoredUserAgents returns prefixes of the User-Agent headers of Argo CD, Flux, and Prometheus, which read a
// space however little it is used. They are no default in the definition, because the platform's configuration may have
// others.
func DefaultIgnoredUserAgents() []string {
	return []string{"argocd-", "helm-controller/", "kustomize-controller/", "Prometheus/"}
}
