// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"crypto/x509"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/identity"
)

// tenantPrefix begins the organization that is a tenant.
const tenantPrefix = "tenant:"

// tenantKey is where a converted user has its tenant.
const tenantKey = "tenant"

// certificateUser converts the subject of a client certificate, as "Access Control Design" of Arktos says:
//
//   - With an organization tenant:NAME, that is the tenant, the common name is the user, and the organizational units are the groups.
//   - Otherwise, what is before the first colon of the common name is the tenant, the whole common name is the user, and the
//     organizations are the groups.
func certificateUser(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	subject := chain[0].Subject
	name, groups, tenant, named := subject.CommonName, subject.Organization, "", false
	for _, organization := range subject.Organization {
		of, ok := strings.CutPrefix(organization, tenantPrefix)
		switch {
		case !ok:
			continue
		case named:
			return nil, false, refused("the subject of your certificate has more than one organization that begins with %s; ask your admin for a certificate with one", tenantPrefix)
		}
		tenant, named, groups = of, true, subject.OrganizationalUnit
	}
	if !named {
		tenant, _, named = strings.Cut(name, ":")
	}
	if !named || tenant == "" || name == "" {
		return nil, false, refused("the subject %.200q of your certificate names no tenant or no user; ask your admin for a certificate with O=%sNAME and CN=USER", subject.String(), tenantPrefix)
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: groups, Extra: map[string][]string{tenantKey: {tenant}}}}, true, nil
}

func identityOfCertificate(response *authenticator.Response) *identity.Identity {
	u := response.User
	return &identity.Identity{Name: u.GetName(), Groups: u.GetGroups(), Tenant: u.GetExtra()[tenantKey][0], Proof: identity.Certificate}
}
