// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/berth-dev/berth/internal/heapsize"
)

// Policy says which definition is in force if both the space and the platform have one, and the platform forces nothing.
type Policy string

// Policies.
const (
	// LocalCRDFirst prefers the definition of the space. It is the default.
	LocalCRDFirst Policy = "LocalCRDFirst"
	// SystemCRDFirst prefers the definition that the platform shares.
	SystemCRDFirst Policy = "SystemCRDFirst"
	// NeverUseSystemCRDUnlessForced uses definitions that the platform shares only if it forces them.
	NeverUseSystemCRDUnlessForced Policy = "NeverUseSystemCRDUnlessForced"
)

// Shared is a definition of the host with what the platform says about it for one space.
type Shared struct {
	// CRD is the definition as [Serve] returns it. It is shared by all spaces, and must not be changed.
	CRD *apiextensionsv1.CustomResourceDefinition
	// Webhook converts objects of the definition. It is nil if none does.
	Webhook *Webhook
	// Forced means that the platform forces the definition on the space. Then InRange doesn't matter.
	Forced bool
	// InRange means that the platform shares the definition with the tenant of the space.
	InRange bool
	// Synced means that the definition is forced because Berth syncs its objects with the host.
	Synced bool

	force  sync.Once
	forced *Shared

	convert  sync.Once
	internal *apiextensions.CustomResourceDefinition
	failed   error // of the conversion

	measure sync.Once
	size    int64

	call   sync.Once
	called *apiextensionsv1.CustomResourceDefinition
}

// Served returns the definition as the API server of a space uses it, and doesn't show it to clients: by it, the server calls the
// webhook. It is shared by all spaces, and must not be changed.
func (s *Shared) Served() *apiextensionsv1.CustomResourceDefinition {
	s.call.Do(func() { s.called = Callable(s.CRD) })
	return s.called
}

// Size returns how much memory the definition takes, in bytes.
func (s *Shared) Size() int64 {
	s.measure.Do(func() { s.size = heapsize.Of(s.CRD) })
	return s.size
}

// Internal returns the definition in the form that API servers store. It is converted once, and must not be changed.
func (s *Shared) Internal() (*apiextensions.CustomResourceDefinition, error) {
	s.convert.Do(func() {
		s.internal = &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(s.CRD.DeepCopy(), s.internal, nil); err != nil {
			s.failed = fmt.Errorf("convert the shared definition %s: %w", s.CRD.Name, err)
		}
	})
	return s.internal, s.failed
}

// Reason is why a definition is in force, or why none is.
type Reason string

// Reasons.
const (
	// Forced means that the platform forces its definition on the space.
	Forced Reason = "Forced"
	// LocalFirst means that the policy prefers the definition of the space, and that there is one.
	LocalFirst Reason = "LocalFirst"
	// SystemFirst means that the policy prefers the definition that the platform shares, and that there is one.
	SystemFirst Reason = "SystemFirst"
	// OnlyLocal means that the platform shares no definition with the space.
	OnlyLocal Reason = "OnlyLocal"
	// OnlyShared means that the space has no definition of its own.
	OnlyShared Reason = "OnlyShared"
	// NeverShared means that the policy excludes the definition that the platform shares.
	NeverShared Reason = "NeverShared"
	// NotFound means that neither has a definition.
	NotFound Reason = "NotFound"
)

// Match is which definition is in force.
type Match struct {
	// CRD is the definition that is in force, local or shared; nil if there is none.
	CRD *apiextensionsv1.CustomResourceDefinition
	// Shared means that CRD is the definition of the platform.
	Shared bool
	// Reason is why.
	Reason Reason
	// Synced means that CRD is forced because Berth syncs its objects with the host.
	Synced bool
}

// GetMatchingCRD returns which of two definitions of one name is in force in a space. local is that of the space, and shared what
// the platform has; nil if there is none. An unknown or empty policy is LocalCRDFirst.
//
// The order of its questions is that of GetMatchingCRD in the design of Arktos, which asks for the range of a forced definition
// nowhere: whether something is forced on this space has been decided before, see [Shared.Forced].
func GetMatchingCRD(local *apiextensionsv1.CustomResourceDefinition, shared *Shared, policy Policy) Match {
	if shared != nil && shared.Forced {
		return Match{CRD: shared.CRD, Shared: true, Reason: Forced, Synced: shared.Synced}
	}
	found := shared != nil && shared.InRange
	switch policy {
	case NeverUseSystemCRDUnlessForced:
		switch {
		case local == nil && found:
			return Match{Reason: NeverShared}
		case local == nil:
			return Match{Reason: NotFound}
		case found:
			return Match{CRD: local, Reason: NeverShared}
		}
		return Match{CRD: local, Reason: OnlyLocal}
	case SystemCRDFirst:
		switch {
		case found && local == nil:
			return Match{CRD: shared.CRD, Shared: true, Reason: OnlyShared}
		case found:
			return Match{CRD: shared.CRD, Shared: true, Reason: SystemFirst}
		case local != nil:
			return Match{CRD: local, Reason: OnlyLocal}
		}
		return Match{Reason: NotFound}
	default: // LocalCRDFirst
		switch {
		case local != nil && found:
			return Match{CRD: local, Reason: LocalFirst}
		case local != nil:
			return Match{CRD: local, Reason: OnlyLocal}
		case found:
			return Match{CRD: shared.CRD, Shared: true, Reason: OnlyShared}
		}
		return Match{Reason: NotFound}
	}
}

// Explain returns a sentence that says why. name is that of the definition, and local says whether the space has one of its own.
func (m Match) Explain(name string, local bool) string {
	const kept = "; the space's own is kept, and not used"
	switch m.Reason {
	case Forced:
		by := "the platform forces its definition by the CRDShare " + name
		if m.Synced {
			by = "the platform forces its definition, because it syncs these objects with the host"
		}
		if local {
			return by + kept
		}
		return by
	case LocalFirst:
		return "the policy LocalCRDFirst prefers the space's own to the one that the platform shares"
	case SystemFirst:
		return "the policy SystemCRDFirst prefers the definition that the platform shares" + kept
	case OnlyShared:
		return "the platform shares it by the CRDShare " + name + ", and the space has none of its own"
	case OnlyLocal:
		return "the platform shares none of this name with the space"
	case NeverShared:
		return "the policy NeverUseSystemCRDUnlessForced excludes the definition that the platform shares"
	default:
		return "there is no definition of this name"
	}
}
