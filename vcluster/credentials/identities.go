// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster/inside"
)

// AcceptIdentities puts a check before next: a request whose client the gateway has identified is of that user for as long as the space
// accepts the identity, by the state at that moment ([access.Source.Accepts]). Nobody else has the name or a group of a ServiceAccount of
// the host, or of a visitor, whatever authenticates them.
func AcceptIdentities(source *access.Source, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if who := identityOf(r.Context()); who != nil {
			if !source.Accepts(who, time.Now()) {
				return nil, false, nil
			}
			return &authenticator.Response{User: access.UserOf(who)}, true, nil
		}
		response, ok, err := next.AuthenticateRequest(r)
		if ok && access.IsReserved(response.User) {
			return nil, false, nil
		}
		return response, ok, err
	})
}

// identityOf returns the identity of the client of a request; nil if the gateway has proved none. Requests of Berth's own may be made
// for a client, and so within its context.
func identityOf(ctx context.Context) *identity.Identity {
	if inside.Is(ctx) {
		return nil
	}
	return identity.From(ctx)
}
