// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
)

// ownPrefix is where the space's own definitions are stored.
const ownPrefix = root + "apiextensions.k8s.io/customresourcedefinitions/"

// matchBytes is about what one match takes until it is sent.
const matchBytes = 2 << 10

// Matches returns which definition is in force of each name that the space or the platform has one of, sorted by name. A name that isn't
// empty asks for that one; then there is none or one.
func (s *Space) Matches(ctx context.Context, name string) ([]v1alpha1.CRDMatch, error) {
	set, _ := s.current()
	own, err := s.ownNames(ctx, name)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(own))
	for _, shared := range set.Names() {
		if !own[shared] && (name == "" || name == shared) {
			names = append(names, shared)
		}
	}
	if r := bounds.ReservationOf(ctx); r != nil {
		if err := r.Grow(int64(len(names)) * matchBytes); err != nil {
			return nil, refused(err, name)
		}
	}
	slices.Sort(names)
	matches := make([]v1alpha1.CRDMatch, len(names))
	for i, one := range names {
		matches[i] = matchOf(set, one, own[one])
	}
	return matches, nil
}

// ownNames returns the names of the space's own definitions. A name that isn't empty asks for that one.
func (s *Space) ownNames(ctx context.Context, name string) (map[string]bool, error) {
	key, options := ownPrefix, []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(ownPrefix)), clientv3.WithKeysOnly()}
	if name != "" {
		key, options = ownPrefix+name, []clientv3.OpOption{clientv3.WithKeysOnly()}
	}
	stored, err := s.store.Client.Get(ctx, key, options...)
	if err != nil {
		return nil, fmt.Errorf("list the names of definitions: %w", err)
	}
	own := make(map[string]bool, len(stored.Kvs))
	for _, kv := range stored.Kvs {
		own[path.Base(string(kv.Key))] = true
	}
	return own, nil
}

func matchOf(set *definitions.Set, name string, own bool) v1alpha1.CRDMatch {
	match := set.InForce(name, own)
	status := v1alpha1.CRDMatchStatus{InForce: v1alpha1.NoCRD, Reason: string(match.Reason), Message: match.Explain(name, own)}
	switch {
	case match.Shared:
		status.InForce = v1alpha1.SharedCRD
	case match.CRD != nil:
		status.InForce = v1alpha1.LocalCRD
	}
	switch shared := set.Of(name); {
	case shared != nil && shared.Forced:
		status.Mode = "Forced"
	case shared != nil:
		status.Mode = "Optional"
	}
	return v1alpha1.CRDMatch{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status}
}
