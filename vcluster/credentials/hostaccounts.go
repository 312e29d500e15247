// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster/hostaccount"
	"github.com/berth-dev/berth/vcluster/inside"
)

// AcceptHostAccounts puts a check before next: a request of a ServiceAccount of the host, which the platform has proven, is of its
// user in the space for as long as it owns the space by the state at that moment (O9). Nobody else has such a user, or is in such a
// group, whatever authenticates them.
func AcceptHostAccounts(source *access.Source, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if name := hostAccountOf(r.Context()); name != "" {
			if isFormerHostAccount(source, name) {
				return nil, false, nil
			}
			return &authenticator.Response{User: access.HostUser(name)}, true, nil
		}
		response, ok, err := next.AuthenticateRequest(r)
		if ok && access.IsHostUser(response.User) {
			return nil, false, nil
		}
		return response, ok, err
	})
}

// hostAccountOf returns the ServiceAccount of the host that makes a request; "" if none does. Requests of Berth's own may be made for
// one, and so within its context.
func hostAccountOf(ctx context.Context) string {
	if inside.Is(ctx) {
		return ""
	}
	return hostaccount.From(ctx)
}

func isFormerHostAccount(source *access.Source, name string) bool {
	return !source.Rules().HasHostAccount(name)
}
