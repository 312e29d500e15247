// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DefaultPlatformName is the name of a platform, and of the one that a space is for, if none is said.
const DefaultPlatformName = "berth"

// Finalizer is on each Space that a platform serves, until nothing is left of what the platform made for it.
const Finalizer = "berth.dev/space"

// AnnotationTrustDedicated on a Space, with the value "true", says that the admin trusts what ran in the space's pod. Otherwise,
// a store that comes from a pod is not opened in the process of all shared spaces.
const AnnotationTrustDedicated = "berth.dev/trust-dedicated"

// DefaultIgnoredUserAgents returns prefixes of the User-Agent headers of Argo CD, Flux, and Prometheus, which read a
// space however little it is used. They are no default in the definition, because the platform's configuration may have
// others.
func DefaultIgnoredUserAgents() []string {
	return []string{"argocd-", "helm-controller/", "kustomize-controller/", "Prometheus/"}
}
