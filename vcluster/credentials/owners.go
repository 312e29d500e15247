// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster/pki"
)

// RefuseFormerOwners puts a check before next: a client certificate that is issued to an owner authenticates nobody once the owner
// is none any more, by the state at that moment.
func RefuseFormerOwners(source *access.Source, next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if IsFormerOwners(source, r) {
			return nil, false, nil
		}
		return next.AuthenticateRequest(r)
	})
}

// IsFormerOwners reports whether a request has the client certificate of an owner who is none any more, or an identity that the space no
// longer accepts.
func IsFormerOwners(source *access.Source, r *http.Request) bool {
	if who := identityOf(r.Context()); who != nil {
		return !source.Accepts(who, time.Now())
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	for _, owner := range pki.OwnersOf(r.TLS.PeerCertificates[0]) {
		if !source.Rules().HasOwner(v1alpha1.SubjectKind(owner.Kind), owner.Name) {
			return true
		}
	}
	return false
}
