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
	"github.com/berth-dev/berth/vcluster/hostaccount"
	"github.com/berth-dev/berth/vcluster/inside"
)

// O9: requests that an API server makes of itself while it serves a ServiceAccount of the host are not of that one.
func TestOnlyRequestsFromOutsideAreOfServiceAccountsOfTheHost(t *testing.T) {
	const robot = "system:serviceaccount:tenant-system:robot"
	source := &access.Source{}
	source.Set(&access.State{Access: v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.HostServiceAccountKind, Name: robot}}}})
	outside := hostaccount.With(context.Background(), robot)
	for reason, c := range map[string]struct {
		ctx  context.Context
		next string
		want string
	}{
		"from outside":                  {outside, "system:apiserver", "berth:host:serviceaccount:tenant-system:robot"},
		"within it":                     {inside.Mark(outside), "system:apiserver", "system:apiserver"},
		"of another one":                {hostaccount.With(context.Background(), robot+"2"), "system:apiserver", ""},
		"of somebody else":              {context.Background(), "alice", "alice"},
		"of nobody":                     {context.Background(), "", ""},
		"of somebody of another's name": {context.Background(), "berth:host:serviceaccount:tenant-system:robot", ""},
	} {
		accepts := AcceptHostAccounts(source, authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
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
