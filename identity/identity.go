// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity hands the proven identity of a client to a space's API server, in the context of the request. The gateway proves it,
// once for all spaces, and the credential goes no further. Nothing in a request that a client sends leads to an identity.
//
// Clients with a credential that a space has issued have no identity here: the API server of the space authenticates them.
package identity

import (
	"context"
	"maps"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Proof is how an identity was proved.
type Proof string

const (
	// HostServiceAccount is a token of a ServiceAccount of the host, which the host has reviewed (O9).
	HostServiceAccount Proof = "HostServiceAccount"
	// Certificate is a client certificate of a CA that the platform's admin has named (A1).
	Certificate Proof = "Certificate"
	// TokenFile is a token in a file of the platform's admin (A2).
	TokenFile Proof = "TokenFile"
	// PasswordFile is a password in such a file (A2).
	PasswordFile Proof = "PasswordFile"
	// OIDC is a token of an OpenID Connect provider that the platform's admin has named (A5).
	OIDC Proof = "OIDC"
	// Webhook is a token that a webhook of the platform's admin has reviewed (A4).
	Webhook Proof = "Webhook"
)

// Identity is who makes a request. It is immutable.
type Identity struct {
	// Name is the user's name in the space. That of a ServiceAccount of the host has the form system:serviceaccount:NAMESPACE:NAME; in
	// the space, it has another.
	Name string
	// UID and Groups are those of [user.Info]. A ServiceAccount of the host has its groups by its name.
	UID    string   `json:",omitempty"`
	Groups []string `json:",omitempty"`
	// Tenant is the tenant of the user. A ServiceAccount of the host has none: it may own spaces of several.
	Tenant string `json:",omitempty"`
	// Extra is that of [user.Info], without the tenant.
	Extra map[string][]string `json:",omitempty"`
	Proof Proof
	// Visitor says that the user is one of another tenant in the space, and has the names that [Identity.AsVisitor] gives.
	Visitor bool `json:",omitempty"`
}

// VisitorPrefix begins the names that only users of other tenants have in a space: the user berth:tenant:TENANT:NAME is in the groups
// berth:tenant:TENANT, and berth:tenant:TENANT:GROUP for each group. So nobody is mistaken for a user of the space's own tenant.
const VisitorPrefix = "berth:tenant:"

// AsVisitor returns the identity that a user has in a space of another tenant.
func (i *Identity) AsVisitor() *Identity {
	prefix := VisitorPrefix + i.Tenant
	v := &Identity{Name: prefix + ":" + i.Name, UID: i.UID, Groups: []string{prefix}, Tenant: i.Tenant, Proof: i.Proof, Visitor: true}
	for _, group := range i.Groups {
		v.Groups = append(v.Groups, prefix+":"+group)
	}
	return v
}

// tenantExtra is the key of a user's extra fields under which people and audit find the tenant. Who may impersonate can claim any: to
// decide on access, use [From].
const tenantExtra = "berth.dev/tenant"

// User returns the user that the identity is for an API server.
func (i *Identity) User() *user.DefaultInfo {
	u := &user.DefaultInfo{Name: i.Name, UID: i.UID, Groups: append([]string{user.AllAuthenticated}, i.Groups...)}
	if i.Visitor { // what a tenant gives to all authenticated users is for its own
		u.Groups = i.Groups
	}
	if i.Tenant == "" && i.Extra == nil {
		return u
	}
	u.Extra = map[string][]string{}
	maps.Copy(u.Extra, i.Extra)
	if i.Tenant != "" {
		u.Extra[tenantExtra] = []string{i.Tenant}
	}
	return u
}

type key struct{}

// With returns a context of requests of an identity.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, key{}, i)
}

// From returns the identity of the client whose request ctx is of; nil if the gateway has proved none.
func From(ctx context.Context) *Identity {
	i, _ := ctx.Value(key{}).(*Identity)
	return i
}
