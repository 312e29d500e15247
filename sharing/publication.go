// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// Prefix is that of the names under which shared objects are published. No Publication has such a name.
const Prefix = "share."

// IsShare reports whether a publication is what a space shares.
func IsShare(publication string) bool { return strings.HasPrefix(publication, Prefix) }

// Namespace returns the namespace on the host in which the SharedObjects of a space are.
func Namespace(space string) string { return translate.HostNamespacePrefix + space }

// SpaceIn returns the space whose SharedObjects are in a namespace of the host; "" if there is none.
func SpaceIn(namespace string) string {
	space, ok := strings.CutPrefix(namespace, translate.HostNamespacePrefix)
	if !ok {
		return ""
	}
	return space
}

// Class says who receives an object. Each class of a space's objects is published under a name of its own.
type Class struct {
	Scope v1alpha1.ShareScope
	// WholeSpace says that only spaces receive it whose owners have the profile SpaceAdmin, as [NeedsWholeSpace] decides.
	WholeSpace bool
}

// Classes returns all classes.
func Classes() []Class {
	return []Class{{v1alpha1.ScopeDescendants, false}, {v1alpha1.ScopeDescendants, true}, {v1alpha1.ScopeChildren, false}, {v1alpha1.ScopeChildren, true}}
}

const (
	children, wholeSpace = ".children", ".space"
	// longestSpace is how long the name of a space may be to be part of the name of a publication as it is.
	longestSpace = validation.LabelValueMaxLength - len(Prefix) - depthDigits - len(".") - len(children) - len(wholeSpace)
	// depthDigits are the digits of the depth in the tree, which a BerthConfiguration limits.
	depthDigits = 2
	// hashBytes are those of the hash in a name that is shortened.
	hashBytes = 8
)

// Publication returns the name under which a class of a space's objects is published. It is the value of a label. A longer name of a
// space is shortened, and has a dot then, as no name of a space has.
//
// The name begins with how many tenants are above, so that the names of what spaces receive from farther above come first in the
// alphabet. If two tenants share one object, or too many spaces share, what comes first wins: a tenant can't replace or crowd out what
// those above it share.
func Publication(from Space, class Class) string {
	space := from.Name
	if len(space) > longestSpace {
		sum := sha256.Sum256([]byte(space))
		space = space[:longestSpace-2*hashBytes-1] + "." + hex.EncodeToString(sum[:hashBytes])
	}
	name := fmt.Sprintf(Prefix+"%0*d.%s", depthDigits, from.Depth, space)
	if class.Scope == v1alpha1.ScopeChildren {
		name += children
	}
	if class.WholeSpace {
		name += wholeSpace
	}
	return name
}
