// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Set is grants with an index by who has them. It is immutable, so that all spaces in which the same is granted share one, and is compared by
// its digest. Nil has no grants.
type Set struct {
	grants   []Grant
	of       map[string]*tenantIndex // by tenant
	expiring []time.Time
	digest   [sha256.Size]byte
}

// tenantIndex has the positions of the grants of a tenant's users, in ascending order, and some more than once.
type tenantIndex struct {
	everybody     []int
	users, groups map[string][]int
}

// NewSet returns a set of grants, which must not be changed afterwards; nil if there are none.
func NewSet(grants []Grant) *Set {
	if len(grants) == 0 {
		return nil
	}
	data, err := json.Marshal(grants)
	if err != nil {
		return nil // that can't be, as they are of strings and times; what can't be compared gives nobody anything
	}
	s := &Set{grants: grants, of: map[string]*tenantIndex{}, digest: sha256.Sum256(data)}
	for i := range grants {
		for j := range grants[i].Subjects {
			s.index(&grants[i].Subjects[j], i)
		}
		if at := grants[i].Expires; at != nil {
			s.expiring = append(s.expiring, at.Time)
		}
	}
	return s
}

func (s *Set) index(subject *GrantSubject, at int) {
	of := s.of[subject.Tenant]
	if of == nil {
		of = &tenantIndex{users: map[string][]int{}, groups: map[string][]int{}}
		s.of[subject.Tenant] = of
	}
	if len(subject.Users) == 0 && len(subject.Groups) == 0 {
		of.everybody = append(of.everybody, at)
	}
	for _, name := range subject.Users {
		of.users[name] = append(of.users[name], at)
	}
	for _, name := range subject.Groups {
		of.groups[name] = append(of.groups[name], at)
	}
}

// All returns the grants. They must not be changed.
func (s *Set) All() []Grant {
	if s == nil {
		return nil
	}
	return s.grants
}

// Equal reports whether two sets have the same grants.
func (s *Set) Equal(as *Set) bool {
	return s == as || s != nil && as != nil && s.digest == as.digest
}

// For returns those grants that are for a client, and hold.
func (s *Set) For(c Client, now time.Time) (own []*Grant) {
	if s == nil || s.of[c.Tenant] == nil {
		return nil
	}
	of := s.of[c.Tenant]
	places := slices.Concat(of.everybody, of.users[c.Name])
	for _, group := range c.Groups {
		places = append(places, of.groups[group]...)
	}
	slices.Sort(places)
	for _, i := range slices.Compact(places) {
		if s.grants[i].For(c, now) {
			own = append(own, &s.grants[i])
		}
	}
	return own
}

// NextExpiry returns when the next grant ends; zero if none will.
func (s *Set) NextExpiry(now time.Time) (next time.Time) {
	if s == nil {
		return next
	}
	for _, at := range s.expiring {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// MarshalJSON implements [json.Marshaler].
func (s *Set) MarshalJSON() ([]byte, error) { return json.Marshal(s.grants) }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Set) UnmarshalJSON(data []byte) error {
	var grants []Grant
	if err := json.Unmarshal(data, &grants); err != nil {
		return fmt.Errorf("decode grants: %w", err)
	}
	if read := NewSet(grants); read != nil {
		*s = *read
	}
	return nil
}

// GrantsFor returns those grants that are for a client, and hold.
func GrantsFor(all []*Set, c Client, now time.Time) (own []*Grant) {
	for _, s := range all {
		own = append(own, s.For(c, now)...)
	}
	return own
}

// SameGrants reports whether two lists have the same sets. It takes no longer if these are large.
func SameGrants(a, b []*Set) bool { return slices.EqualFunc(a, b, (*Set).Equal) }
