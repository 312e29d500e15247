// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster/inside"
)

// O9, Z1, Z2: requests that an API server makes of itself while it serves a client are not of that client, and identities of other tenants are nobody.
func TestOnlyRequestsFromOutsideAreOfIdentities(t *testing.T) {
	const robot = "system:serviceaccount:tenant-system:robot"
	source := &access.Source{}
	source.Set(&access.State{Tenant: "solar", Access: v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.HostServiceAccountKind, Name: robot}}}})
	of := func(who identity.Identity) context.Context { return identity.With(context.Background(), &who) }
	outside := of(identity.Identity{Name: robot, Proof: identity.HostServiceAccount})
	for reason, c := range map[string]struct {
		ctx  context.Context
		next string
		want string
	}{
		"from outside":                  {outside, "system:apiserver", "berth:host:serviceaccount:tenant-system:robot"},
		"within it":                     {inside.Mark(outside), "system:apiserver", "system:apiserver"},
		"of another one":                {of(identity.Identity{Name: robot + "2", Proof: identity.HostServiceAccount}), "system:apiserver", ""},
		"of a user of the tenant":       {of(identity.Identity{Name: "bob", Tenant: "solar"}), "system:apiserver", "bob"},
		"of a user of another tenant":   {of(identity.Identity{Name: "bob", Tenant: "mars"}), "alice", ""},
		"of a user of no tenant":        {of(identity.Identity{Name: "bob"}), "alice", ""},
		"of a system user":              {of(identity.Identity{Name: "root", Tenant: "system"}), "alice", "root"},
		"with another's name":           {of(identity.Identity{Name: "berth:host:serviceaccount:tenant-system:robot", Tenant: "solar"}), "", ""},
		"of somebody else":              {context.Background(), "alice", "alice"},
		"of nobody":                     {context.Background(), "", ""},
		"of somebody of another's name": {context.Background(), "berth:host:serviceaccount:tenant-system:robot", ""},
	} {
		accepts := AcceptIdentities(source, authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			if c.next == "" {
				return nil, false, errors.New("nobody")
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: c.next}}, true, nil
		}))
		got := ""
		if response, ok, _ := accepts.AuthenticateRequest((&http.Request{}).WithContext(c.ctx)); ok {
			got = response.User.GetName()
		}
		if got != c.want {
			t.Errorf("%s: it is %q, want %q", reason, got, c.want)
		}
	}
}
