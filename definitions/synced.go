// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// ErrNotServed means that the host doesn't serve the version of a definition that Berth syncs.
var ErrNotServed = errors.New("the version is not served")

// ForSync returns the definition of objects that Berth syncs with the host, which is forced on each space of which they
// are synced. It is the host's with only the synced version, so that nothing is converted. Objects that a space has
// stored in one of the host's other versions, because a CRDShare served them, can still be read.
//
// Spaces serve it also while the host doesn't yet, as it was created just now: a platform must start then, too.
//
// The error is [ErrNotServed] if the host has no such version that is served.
func ForSync(host *apiextensionsv1.CustomResourceDefinition, version string) (*Shared, error) {
	trimmed := host.DeepCopy()
	trimmed.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	trimmed.Spec.PreserveUnknownFields = false
	trimmed.Spec.Versions = nil
	var others []string
	for _, v := range host.Spec.Versions {
		switch {
		case v.Name != version:
			others = append(others, v.Name)
		case v.Served:
			v.Storage = true
			trimmed.Spec.Versions = append(trimmed.Spec.Versions, v)
		}
	}
	if len(trimmed.Spec.Versions) == 0 {
		return nil, fmt.Errorf("%s: %w: %s", host.Name, ErrNotServed, version)
	}
	trimmed.DeletionTimestamp = nil
	trimmed.Status = apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: trimmed.Spec.Names, StoredVersions: []string{version}}
	for _, is := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: is, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: host.CreationTimestamp, Reason: "Synced", Message: "Berth syncs these objects with the host",
		})
	}
	served, err := Serve(trimmed, "", others...)
	if err != nil {
		return nil, err
	}
	return &Shared{CRD: served, Forced: true, Synced: true}, nil
}

// forSync returns the definition of a CRDShare, forced on spaces whose objects of it are synced. It is always the same
// pointer.
func (s *Shared) forSync() *Shared {
	s.force.Do(func() {
		s.forced = &Shared{CRD: s.CRD, Webhook: s.Webhook, Forced: true, InRange: s.InRange, Synced: true}
	})
	return s.forced
}

func (s *Shared) serves(version string) bool {
	return slices.ContainsFunc(s.CRD.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

// WithSynced returns the set with definitions that [ForSync] has made. A definition that a CRDShare gives the space
// takes the place of one of the same name if it serves the synced version: it may have more versions. It is forced
// then, whatever the share says.
func (s *Set) WithSynced(synced ...*Shared) *Set {
	if len(synced) == 0 {
		return s
	}
	all, policy := map[string]*Shared{}, Policy("")
	if s != nil {
		policy = s.policy
		maps.Copy(all, s.shared)
	}
	for _, one := range synced {
		if share := s.Of(one.CRD.Name); share != nil && share.serves(StorageVersion(one.CRD)) {
			one = share.forSync()
		}
		all[one.CRD.Name] = one
	}
	return NewSet(policy, slices.Collect(maps.Values(all))...)
}

// HasShares reports whether some of the definitions are those of CRDShares.
func (s *Set) HasShares() bool {
	return slices.ContainsFunc(s.Names(), func(name string) bool { return shareOf(s.Of(name).CRD) != "" })
}

// WithSynced returns a source that has the sets of s with the definitions of objects that are synced; see
// [Set.WithSynced]. These are known at once. A nil source has no sets, and is known. Set may be called on either.
func (s *Source) WithSynced(synced ...*Shared) *Source {
	if len(synced) == 0 {
		return s
	}
	if s == nil {
		s = &Source{known: true}
	}
	return &Source{shares: s, synced: synced}
}

// with returns a set of the source's shares with what is synced.
func (s *Source) with(set *Set) *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil || s.of != set {
		s.set, s.of = set.WithSynced(s.synced...), set
	}
	return s.set
}
