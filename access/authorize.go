// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Authorize decides on a request before RBAC does: nobody writes to a cordoned space, administrators may do everything, owners with
// the profile SpaceAdmin everything but what is about nodes, and all owners may create namespaces. Otherwise it has no opinion.
// Requests from inside the space, such as those of controllers, are never cordoned.
func (r *Rules) Authorize(a authorizer.Attributes, promoted, inside bool) (authorizer.Decision, string) {
	if err := r.CheckCordon(a); err != nil && !inside {
		return authorizer.DecisionDeny, err.Error()
	}
	if a.GetUser() == nil {
		return authorizer.DecisionNoOpinion, ""
	}
	s := r.StandingOf(a.GetUser(), promoted)
	switch {
	case s.Administrator:
		return authorizer.DecisionAllow, fmt.Sprintf("administrator of tenant %s", r.state.TenantName())
	case s.SpaceAdmin && !aboutNodes(a), s.Owner && createsNamespace(a):
		return authorizer.DecisionAllow, fmt.Sprintf("owner of tenant %s", r.state.TenantName())
	}
	return authorizer.DecisionNoOpinion, ""
}

// aboutNodes reports whether a request is about nodes, or about all resources, nodes among them.
func aboutNodes(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && AboutNodes(a.GetAPIGroup(), a.GetResource())
}

// AboutNodes reports whether a resource, which may have a subresource, is nodes, or stands for all.
func AboutNodes(group, resource string) bool {
	main, _, _ := strings.Cut(resource, "/")
	return (main == "nodes" || main == anything) && (group == "" || group == anything || group == "metrics.k8s.io")
}

func createsNamespace(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && a.GetVerb() == "create" && a.GetAPIGroup() == "" && a.GetResource() == "namespaces" && a.GetSubresource() == ""
}
