// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/identity"
)

// KnownUser is the user of an identity that the gateway has proved, with its own names. It is a type of its own so that grants to users of
// the tenant system, or of the space's tenant, hold for nobody else: who impersonates somebody makes a user of another type.
type KnownUser struct {
	*user.DefaultInfo
	client Client
}

var _ user.Info = &KnownUser{}

// known returns the user of an identity that is no visitor's.
func known(who *identity.Identity) *KnownUser { return &KnownUser{who.User(), ClientOf(who)} }

// clientOfUser returns which client a user is. visitor reports whether it is a user of another tenant.
func clientOfUser(u user.Info) (c Client, visitor, ok bool) {
	if of, ok := u.(*KnownUser); ok {
		return of.client, false, true
	}
	c, visitor = VisitorOf(u)
	return c, visitor, visitor
}
