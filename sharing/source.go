// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Name names an object of a space.
type Name struct {
	// Resource is the plural name of one of [Kinds].
	Resource string
	types.NamespacedName
}

// String names the object for messages.
func (n Name) String() string { return n.Resource + " " + n.NamespacedName.String() }

// Source finds the objects of a space that may be shared. Others may be among them.
type Source interface {
	// EachShared calls f with the objects that have the label.
	EachShared(ctx context.Context, f func(Name)) error
	// FollowShared calls changed with each object that is written and has the label before or after that, and lost if writes were
	// missed. Both must return soon.
	FollowShared(changed func(Name), lost func())
}
