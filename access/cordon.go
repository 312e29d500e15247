// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Cordoned reports whether clients may only read and delete.
func (r *Rules) Cordoned() bool { return r.state.Access.Cordoned != nil && *r.state.Access.Cordoned }

// CheckCordon refuses a request of a client that neither reads nor deletes, if the space is cordoned.
func (r *Rules) CheckCordon(a authorizer.Attributes) error {
	if !r.Cordoned() || readsOrDeletes(a) {
		return nil
	}
	return fmt.Errorf("tenant %s is cordoned: clients may only read and delete objects; "+
		"ask the administrator of the platform to end this with spec.cordoned: false of the tenant", r.state.TenantName())
}

// readsOrDeletes reports whether a request changes nothing but by deletion. What connects to pods can change anything there.
func readsOrDeletes(a authorizer.Attributes) bool {
	if !a.IsResourceRequest() {
		return a.GetVerb() == "get" || a.GetVerb() == "head" || a.GetVerb() == "options"
	}
	switch a.GetVerb() {
	case "get", "list", "watch", "delete", "deletecollection":
		return !slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, a.GetSubresource())
	case "create":
		return isSelfReview(a)
	}
	// The impersonated user's own request is checked, too.
	return a.GetVerb() == "impersonate" || strings.HasPrefix(a.GetVerb(), "impersonate:") || strings.HasPrefix(a.GetVerb(), "impersonate-on:")
}

// isSelfReview reports whether somebody asks who they are, or what they may do.
func isSelfReview(a authorizer.Attributes) bool {
	switch a.GetAPIGroup() {
	case "authorization.k8s.io":
		return a.GetResource() == "selfsubjectaccessreviews" || a.GetResource() == "selfsubjectrulesreviews"
	case "authentication.k8s.io":
		return a.GetResource() == "selfsubjectreviews"
	}
	return false
}
