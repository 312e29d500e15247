// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spacev1alpha1 "github.com/berth-dev/berth/api/space/v1alpha1"
)

// Grant gives users whom the platform knows rights in a space. It is immutable.
type Grant struct {
	// Source says where the grant is from, for people: such as "TenantAccess auditors".
	Source   string
	Subjects []GrantSubject
	Rules    []GrantRule
	// Expires is when the grant ends; nil if never.
	Expires *metav1.Time `json:",omitempty"`
}

// GrantSubject is users of a tenant: those with one of the names or groups, or all if there are neither.
type GrantSubject struct {
	Tenant        string
	Users, Groups []string `json:",omitempty"`
	// Both says that users must have one of the names and one of the groups, if there are names and groups.
	Both bool `json:",omitempty"`
}

// GrantRule is rights. It is for all objects if it has no names, and for all namespaces and what is in none if it has no namespaces. The
// namespace "" stands for what is in none, and for all namespaces at once.
type GrantRule struct {
	Verbs                                           []string
	APIGroups, Resources, ResourceNames, Namespaces []string `json:",omitempty"`
	// Paths are those of no resource. They may end with "*".
	Paths []string `json:",omitempty"`
}

// Client is somebody whom the platform knows, by the names that the tenant has.
type Client struct {
	Tenant, Name string
	Groups       []string
}

// GrantOf returns what a TenantAccess gives. It shares the slices.
func GrantOf(a *spacev1alpha1.TenantAccess) Grant {
	g := Grant{Source: "TenantAccess " + a.Name, Expires: a.Spec.ExpirationTime}
	for _, s := range a.Spec.Subjects {
		g.Subjects = append(g.Subjects, GrantSubject{Tenant: s.Tenant, Users: s.Users, Groups: s.Groups})
	}
	for _, r := range a.Spec.Rules {
		g.Rules = append(g.Rules, GrantRule{
			Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, Namespaces: r.Namespaces,
		})
	}
	return g
}

// For reports whether a grant is for a client, and holds.
func (g *Grant) For(c Client, now time.Time) bool {
	return (g.Expires == nil || now.Before(g.Expires.Time)) && slices.ContainsFunc(g.Subjects, func(s GrantSubject) bool { return s.has(c) })
}

func (s *GrantSubject) has(c Client) bool {
	if c.Tenant == "" || s.Tenant != c.Tenant {
		return false
	}
	named := slices.Contains(s.Users, c.Name)
	member := slices.ContainsFunc(c.Groups, func(group string) bool { return slices.Contains(s.Groups, group) })
	switch {
	case len(s.Users) == 0 && len(s.Groups) == 0:
		return true
	case s.Both && len(s.Users) > 0 && len(s.Groups) > 0:
		return named && member
	}
	return named || member
}

// IsImpersonation reports whether a verb is one of acting as others. It is never granted: what is done as somebody else does not end with
// the grant.
func IsImpersonation(verb string) bool {
	return verb == "impersonate" || strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:")
}

// GrantOfStored is GrantOf of a TenantAccess as it is in a store.
func GrantOfStored(data []byte) (Grant, error) {
	object := &spacev1alpha1.TenantAccess{}
	if err := json.Unmarshal(data, object); err != nil {
		return Grant{}, fmt.Errorf("decode a TenantAccess: %w", err)
	}
	return GrantOf(object), nil
}

const (
	// MaxTenantAccesses is how many TenantAccess objects a space may have.
	MaxTenantAccesses = 64
	// MaxTenantAccessBytes limits each of them, in bytes.
	MaxTenantAccessBytes = 16 << 10
)
