// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/berth-dev/berth/internal/clientcert"
)

// RememberCertificates puts a memory of verified certificates before upstream, which judges whatever else comes.
func RememberCertificates(verify x509request.VerifyOptionFunc, upstream authenticator.Request) authenticator.Request {
	known := clientcert.New(verify, x509request.CommonNameUserConversion)
	good := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := known.AuthenticateRequest(r)
		if err != nil {
			return nil, false, nil //nolint:nilerr // upstream has the same error
		}
		return response, ok, nil
	})
	return union.New(group.NewAuthenticatedGroupAdder(good), upstream)
}
