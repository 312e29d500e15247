// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
)

// Indexes of the cache. With them, the work for a shared object doesn't depend on how many spaces there are elsewhere in the tree.
// Package share uses the first two as well.
const (
	SpaceTenant = "publication.tenant"   // Spaces by their tenant
	SpaceAbove  = "publication.above"    // Spaces by each tenant above from which they inherit
	spaceShare  = "publication.share"    // Spaces by each name under which something is shared with them
	objectShare = "publication.sharedAs" // PublishedObjects that a space shares, by their publication
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for field, of := range map[string]func(*v1alpha1.Space) []string{
		SpaceTenant: func(s *v1alpha1.Space) []string { return []string{s.Spec.TenantName} },
		SpaceAbove:  func(s *v1alpha1.Space) []string { return sharing.SpaceOf(s).InheritsFrom },
		spaceShare: func(s *v1alpha1.Space) (names []string) {
			for _, name := range s.Spec.Publications {
				if sharing.IsShare(name) {
					names = append(names, name)
				}
			}
			return names
		},
	} {
		err := indexer.IndexField(ctx, &v1alpha1.Space{}, field, func(o client.Object) []string {
			space, _ := o.(*v1alpha1.Space)
			return of(space)
		})
		if err != nil {
			return fmt.Errorf("index Spaces by %s: %w", field, err)
		}
	}
	err := indexer.IndexField(ctx, &v1alpha1.PublishedObject{}, objectShare, func(o client.Object) []string {
		if o.GetLabels()[v1alpha1.LabelSharedBy] == "" {
			return nil
		}
		return []string{o.GetLabels()[v1alpha1.LabelPublication]}
	})
	if err != nil {
		return fmt.Errorf("index PublishedObjects by %s: %w", objectShare, err)
	}
	return nil
}
