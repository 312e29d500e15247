// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// ownerScheme and ownerHost begin the URI by which a client certificate names the owner that it is issued to, such as
// berth://owner/User/alice. In kind and name, all bytes are escaped that a path can't have.
const (
	ownerScheme = "berth"
	ownerHost   = "owner"
)

// Owner is the owner of a tenant that a client certificate is issued to.
type Owner struct {
	// Kind is User, Group, or ServiceAccount.
	Kind string
	// Name is the name of the owner in the tenant, which need not be the user of the certificate.
	Name string
}

func (o Owner) uri() *url.URL {
	return &url.URL{
		Scheme: ownerScheme, Host: ownerHost, Path: "/" + o.Kind + "/" + o.Name,
		RawPath: "/" + url.PathEscape(o.Kind) + "/" + url.PathEscape(o.Name),
	}
}

// ClientForOwner is [CA.ClientFor] for an owner of the space's tenant. The certificate is good only as long as the owner is one:
// the space rejects it once the owner is removed.
func (ca *CA) ClientForOwner(life time.Duration, owner Owner, user string, groups []string) (Pair, error) {
	if user == "" || owner.Kind == "" || owner.Name == "" {
		return Pair{}, errors.New("issue client certificate for an owner: the user, or the kind or name of the owner is empty")
	}
	p, err := ca.issue(min(life, MaxClientLifetime), &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{owner.uri()},
	})
	if err != nil {
		return Pair{}, fmt.Errorf("issue client certificate for owner %s: %w", owner.Name, err)
	}
	return p, nil
}

// OwnersOf returns the owners that a client certificate is issued to: one, or none if it isn't issued to an owner. One that can't
// be read is returned without a name, so that nobody passes for another by it.
func OwnersOf(client *x509.Certificate) []Owner {
	var owners []Owner
	for _, u := range client.URIs {
		if !strings.EqualFold(u.Scheme, ownerScheme) {
			continue
		}
		owner := Owner{}
		kind, name, ok := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
		kind, kindErr := url.PathUnescape(kind)
		name, nameErr := url.PathUnescape(name)
		if ok && kindErr == nil && nameErr == nil && u.Host == ownerHost {
			owner = Owner{Kind: kind, Name: name}
		}
		owners = append(owners, owner)
	}
	return owners
}

// again issues another certificate in place of one, for the same user and owner.
func (ca *CA) again(client *x509.Certificate, groups []string) (Pair, error) {
	if owners := OwnersOf(client); len(owners) > 0 {
		return ca.ClientForOwner(ClientLifetime, owners[0], client.Subject.CommonName, groups)
	}
	return ca.Client(client.Subject.CommonName, groups)
}
