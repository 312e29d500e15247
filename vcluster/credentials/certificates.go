// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/union"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/berth-dev/berth/internal/clientcert"
)

// RememberCertificates puts a memory of verified certificates before upstream, which judges whatever else comes.
func RememberCertificates(verify x509request.VerifyOptionFunc, upstream authenticator.Request) authenticator.Request {
	known := clientcert.New(verify, x509request.CommonNameUserConversion)
	return union.New(group.NewAuthenticatedGroupAdder(known), upstream)
}
