// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func on(verb, group, resource string) authorizer.AttributesRecord {
	resource, subresource, _ := strings.Cut(resource, "/")
	return authorizer.AttributesRecord{Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, ResourceRequest: true}
}

// O7, O8
func TestAuthorize(t *testing.T) {
	const allow, deny, none = authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionNoOpinion
	owned := v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}}, Administrators: []v1alpha1.Subject{{Kind: v1alpha1.UserKind, Name: "bill"}}}
	narrow, cordoned := owned, owned
	narrow.OwnerProfile, cordoned.Cordoned = v1alpha1.NamespaceAdmin, ptr.To(true)
	for reason, c := range map[string]struct {
		access v1alpha1.Access
		user   string
		a      authorizer.AttributesRecord
		want   authorizer.Decision
	}{
		"an owner creates a CRD":                     {owned, "alice", on("create", "apiextensions.k8s.io", "customresourcedefinitions"), allow},
		"an owner escalates":                         {owned, "alice", on("escalate", "rbac.authorization.k8s.io", "clusterroles"), allow},
		"an owner lists nodes":                       {owned, "alice", on("list", "", "nodes"), none},
		"an owner uses the proxy of a node":          {owned, "alice", on("get", "", "nodes/proxy"), none},
		"an owner reads the usage of nodes":          {owned, "alice", on("list", "metrics.k8s.io", "nodes"), none},
		"an owner asks for everything":               {owned, "alice", on("*", "*", "*"), none},
		"an owner reads a path":                      {owned, "alice", authorizer.AttributesRecord{Verb: "get", Path: "/version"}, allow},
		"an administrator lists nodes":               {owned, "bill", on("list", "", "nodes"), allow},
		"somebody else":                              {owned, "mallory", on("list", "", "pods"), none},
		"under NamespaceAdmin, create namespaces":    {narrow, "alice", on("create", "", "namespaces"), allow},
		"under NamespaceAdmin, finalize a namespace": {narrow, "alice", on("create", "", "namespaces/finalize"), none},
		"under NamespaceAdmin, list namespaces":      {narrow, "alice", on("list", "", "namespaces"), none},
		"under NamespaceAdmin, a foreign namespaces": {narrow, "alice", on("create", "example.com", "namespaces"), none},
		"under NamespaceAdmin, nodes":                {narrow, "alice", on("get", "", "nodes"), none},
		"cordoned, read":                             {cordoned, "alice", on("watch", "", "pods"), allow},
		"cordoned, delete":                           {cordoned, "mallory", on("delete", "", "pods"), none},
		"cordoned, create":                           {cordoned, "alice", on("create", "", "pods"), deny},
		"cordoned, an administrator":                 {cordoned, "bill", on("patch", "", "pods"), deny},
		"cordoned, exec by a WebSocket":              {cordoned, "alice", on("get", "", "pods/exec"), deny},
		"cordoned, the proxy of a service":           {cordoned, "alice", on("get", "", "services/proxy"), deny},
		"cordoned, logs":                             {cordoned, "alice", on("get", "", "pods/log"), allow},
		"cordoned, evict":                            {cordoned, "alice", on("create", "", "pods/eviction"), deny},
		"cordoned, who am I":                         {cordoned, "mallory", on("create", "authentication.k8s.io", "selfsubjectreviews"), none},
		"cordoned, what may I":                       {cordoned, "mallory", on("create", "authorization.k8s.io", "selfsubjectrulesreviews"), none},
		"cordoned, a token":                          {cordoned, "alice", on("create", "", "serviceaccounts/token"), deny},
		"cordoned, discovery":                        {cordoned, "mallory", authorizer.AttributesRecord{Verb: "get", Path: "/apis"}, none},
		"cordoned, a path that is written":           {cordoned, "alice", authorizer.AttributesRecord{Verb: "post", Path: "/x"}, deny},
		"cordoned, impersonation":                    {cordoned, "mallory", on("impersonate", "", "users"), none},
	} {
		rules := access.NewRules(&access.State{Tenant: "solar", Access: c.access})
		c.a.User = who(c.user)
		got, why := rules.Authorize(c.a, false, false)
		if got != c.want {
			t.Errorf("%s: %v (%s), want %v", reason, got, why, c.want)
		}
		if inside, _ := rules.Authorize(c.a, false, true); inside == deny {
			t.Errorf("%s: it is refused from inside, too", reason)
		}
		if got == deny && (!strings.Contains(why, "solar") || !strings.Contains(why, "administrator")) {
			t.Errorf("%s: %q neither names the tenant nor who can help", reason, why)
		}
	}
}

// O8: in a cordoned space nobody is allowed a verb that is not known to read or delete.
func TestNoVerbIsLeftOpenInACordonedSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAccess(t)
		a.Cordoned = ptr.To(true)
		attributes := on(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"update", "bind", "escalate", "*", "use", "approve"})).Draw(t, "verb"), "", rapid.String().Draw(t, "resource"))
		attributes.User = drawUser(t)
		got, _ := access.NewRules(&access.State{Access: a}).Authorize(attributes, rapid.Bool().Draw(t, "promoted"), false)
		switch attributes.Verb {
		case "get", "list", "watch", "delete", "deletecollection", "impersonate":
		default:
			if !strings.HasPrefix(attributes.Verb, "impersonate") && got != authorizer.DecisionDeny {
				t.Fatalf("%q is %v", attributes.Verb, got)
			}
		}
	})
}
