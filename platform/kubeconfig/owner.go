// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// berthPrefix is the prefix of Berth's own users and groups in a space, such as [AdminGroup].
const berthPrefix = "berth:"

// groupUserPrefix is the prefix of the users of groups' kubeconfigs. No owner of that kind gets one of that user's name.
const groupUserPrefix = berthPrefix + "group:"

// OwnerUser returns the user and the groups of an owner's kubeconfig: for a User the user itself, for a Group the user
// berth:group:NAME in the group. Both are in [v1alpha1.OwnersGroup], so that they count as owners by default (O6). It fails for
// ServiceAccounts, which have tokens, and for names that Kubernetes or Berth reserves.
func OwnerUser(owner v1alpha1.Subject) (user string, groups []string, err error) {
	switch owner.Kind {
	case v1alpha1.UserKind:
		user, groups = owner.Name, []string{v1alpha1.OwnersGroup}
	case v1alpha1.GroupKind:
		user, groups = groupUserPrefix+owner.Name, []string{v1alpha1.OwnersGroup}
		if owner.Name != v1alpha1.OwnersGroup {
			groups = append(groups, owner.Name)
		}
	case v1alpha1.HostServiceAccountKind:
		return "", nil, fielderror.New("owner-kind", owner.Kind, "must be %s or %s: a ServiceAccount of the host uses its tokens, see 'kubectl create token --audience %s'", v1alpha1.UserKind, v1alpha1.GroupKind, v1alpha1.TokenAudience)
	case v1alpha1.ServiceAccountKind:
		return "", nil, fielderror.New("owner-kind", owner.Kind, "must be %s or %s: a ServiceAccount uses its tokens, see 'kubectl create token'", v1alpha1.UserKind, v1alpha1.GroupKind)
	default:
		return "", nil, fielderror.New("owner-kind", owner.Kind, "must be %s or %s", v1alpha1.UserKind, v1alpha1.GroupKind)
	}
	if strings.HasPrefix(owner.Name, berthPrefix) {
		return "", nil, fielderror.New("owner", owner.Name, "must not begin with %q, which Berth reserves", berthPrefix)
	}
	if err := checkIdentity("owner", owner.Name); err != nil {
		return "", nil, err
	}
	if longest := maxNameBytes - len(groupUserPrefix); owner.Kind == v1alpha1.GroupKind && len(owner.Name) > longest {
		return "", nil, fielderror.New("owner", fmt.Sprintf("%.40q", owner.Name), "must have at most %d bytes, because the user of a group's kubeconfig is %sNAME", longest, groupUserPrefix)
	}
	return user, groups, nil
}

// MaxOwners is the maximum number of owners of a space whose kubeconfigs are in Secrets.
const MaxOwners = 64

// IssuableOwners returns the owners of a space who get a kubeconfig, in their order, and how many of them are left out because there
// are more than [MaxOwners].
func IssuableOwners(access *v1alpha1.Access) (owners []v1alpha1.Subject, left int) {
	for _, owner := range access.Owners {
		subject := v1alpha1.Subject{Kind: owner.Kind, Name: owner.Name}
		if _, _, err := OwnerUser(subject); err == nil && !slices.Contains(owners, subject) {
			owners = append(owners, subject)
		}
	}
	if left = len(owners) - MaxOwners; left > 0 {
		return owners[:MaxOwners], left
	}
	return owners, 0
}

const (
	ownerInfix = "-owner-"
	// maxReadable is how much of an owner's name is in the name of its Secret, in bytes.
	maxReadable = 40
)

// ownerSecretName returns the name of the Secret with the kubeconfig of a space's owner: SPACE-owner-READABLE---HASH. No two owners
// share one, see [translate.Hashed], and no other Secret of Berth's has a name that ends with a hash.
func ownerSecretName(space string, owner v1alpha1.Subject) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(owner.Name))
	readable = readable[:min(len(readable), maxReadable)]
	return space + translate.Hashed(ownerInfix+readable, translate.LimitSubdomain-len(space), "owner", space, string(owner.Kind), owner.Name)
}

// clientFor issues the certificate of an owner, which the space rejects once the owner is none any more.
func clientFor(clients *pki.CA, r *Request) (pki.Pair, error) {
	if r.Owner == nil {
		return clients.ClientFor(r.TTL, r.User, r.Groups)
	}
	return clients.ClientForOwner(r.TTL, pki.Owner{Kind: string(r.Owner.Kind), Name: r.Owner.Name}, r.User, r.Groups)
}
