// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
)

// root is the prefix of the keys of all objects.
const root = "/registry/"

// checkOwners keeps the garbage collector from what it takes for garbage because the definition of an owner is not in force: the owner
// comes back with its definition, and what it owns must be there (C5).
func (s *Space) checkOwners(ctx context.Context, a admission.Attributes) error {
	if !inside.IsCollector(ctx) || a.GetOldObject() == nil {
		return nil
	}
	before, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil //nolint:nilerr // it has no owners
	}
	kept := map[string]bool{}
	if a.GetOperation() == admission.Update {
		if after, err := meta.Accessor(a.GetObject()); err == nil {
			for _, owner := range after.GetOwnerReferences() {
				kept[string(owner.UID)] = true
			}
		}
	}
	for _, owner := range before.GetOwnerReferences() {
		if kept[string(owner.UID)] {
			continue
		}
		stored, err := s.isStored(ctx, owner, a.GetNamespace())
		if err != nil {
			return err
		}
		if stored {
			return apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf(
				"its owner %s %s is stored, and comes back when its CustomResourceDefinition is in force", owner.Kind, owner.Name))
		}
	}
	return nil
}

// Hides reports whether the space has this object stored, nobody deletes it, and it may be hidden: another definition may be in force.
func (s *Space) Hides(ctx context.Context, group, namespace, name string, uid types.UID) (bool, error) {
	return s.isStored(ctx, metav1.OwnerReference{APIVersion: group + "/v1", Name: name, UID: uid}, namespace)
}

// isStored reports whether the store has the owner, by either definition, and nobody deletes it.
func (s *Space) isStored(ctx context.Context, owner metav1.OwnerReference, namespace string) (bool, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false, nil //nolint:nilerr // nobody can have it
	}
	plurals, err := s.hiddenPlurals(ctx, version.Group)
	if err != nil {
		return false, err
	}
	for _, plural := range plurals {
		resource := version.Group + "/" + plural + "/"
		for _, key := range []string{
			root + resource + namespace + "/" + owner.Name, root + resource + owner.Name,
			root + sharedPrefix + resource + namespace + "/" + owner.Name, root + sharedPrefix + resource + owner.Name,
		} {
			got, err := s.store.Kubernetes.Get(bounds.WithReservation(ctx, nil), key, kubernetes.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("read an owner: %w", err)
			}
			var stored metav1.PartialObjectMetadata
			if got.KV != nil && json.Unmarshal(got.KV.Value, &stored) == nil && stored.UID == owner.UID && stored.DeletionTimestamp == nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// hiddenPlurals returns the resources of a group that may have objects of a definition that is not in force. The kind of an owner doesn't
// tell its resource: the definition in force of a name may have another kind, or there is none.
func (s *Space) hiddenPlurals(ctx context.Context, group string) ([]string, error) {
	stored, err := s.sharedResources(bounds.WithReservation(ctx, nil), group+"/")
	if err != nil {
		return nil, err
	}
	plurals := map[string]bool{}
	for _, resource := range stored {
		plurals[path.Base(resource)] = true
	}
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	for name, owner := range s.definitionOwners {
		if plural, of, _ := strings.Cut(name, "."); of == group && owner.switchCount > 0 { // the space's own may be hidden, or was just now
			plurals[plural] = true
		}
	}
	return slices.Collect(maps.Keys(plurals)), nil
}
