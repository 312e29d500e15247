// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/translate"
)

const (
	// moveTime is how long objects are moved at once: the space starts when it is over.
	moveTime = 15 * time.Second
	// moveRetry is how long to wait before objects that could not be moved are moved again.
	moveRetry = 10 * time.Second
)

var errRaced = errors.New("another process writes to the store, too")

// moveCopies moves the objects of copied definitions to where those of shared definitions are. Berth used to copy the
// host's definition into a space for each kind that it syncs. Now it shares these definitions. A definition of such a
// name without Berth's label is the tenant's. It stays, and is hidden with its objects.
//
// The copy is deleted last, so that this is done again if the process ends before. Objects that could not be moved stay
// where they are. Until they are moved, nobody can read or write objects of the definition: a list without them would
// mean that they were deleted. It reports whether something was moved.
func (s *Space) moveCopies(ctx context.Context, set *definitions.Set) (moved bool) {
	ctx, cancel := context.WithTimeout(bounds.WithReservation(ctx, nil), moveTime) // it is not a request's
	defer cancel()
	unmoved := map[string]bool{}
	for _, name := range set.Names() {
		if !set.Of(name).Synced {
			continue
		}
		found, err := s.moveCopy(ctx, set.Of(name).CRD)
		moved = moved || found
		if err != nil {
			unmoved[name] = true
			if errors.Is(err, context.DeadlineExceeded) {
				klog.FromContext(ctx).Info("Moves objects of a synced kind, which an earlier version of Berth stored in another place. The space can't use them until that is done", "definition", name)
				continue
			}
			klog.FromContext(ctx).Error(err, "Could not move the objects of a synced kind, which an earlier version of Berth stored in another place. "+
				"The space can't use them until they are moved. If the store is full or has too many objects, delete objects of other kinds, or raise the limit. Berth retries",
				"definition", name, "after", moveRetry)
		}
	}
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	s.unmoved = unmoved
	return moved
}

// moveCopy moves the objects of one copied definition, and deletes the copy. It reports whether there is one.
func (s *Space) moveCopy(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (found bool, err error) {
	name := crd.Name
	stored, err := s.store.Kubernetes.Get(ctx, ownPrefix+name, kubernetes.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the definition %s: %w", name, err)
	}
	if stored.KV == nil {
		return false, nil
	}
	if !isCopy(stored.KV.Value, crd) {
		klog.FromContext(ctx).Info("A definition of the tenant's own is hidden with its objects, because Berth syncs the kind; disable the sync for the space to have it back", "definition", name)
		return false, nil
	}
	gr := schema.ParseGroupResource(name)
	if err := s.moveObjects(ctx, gr.Group+"/"+gr.Resource+"/"); err != nil {
		return true, fmt.Errorf("move objects of %s: %w", name, err)
	}
	if err := s.deleteKey(ctx, ownPrefix+name, stored.KV.ModRevision); err != nil {
		return true, fmt.Errorf("delete the copied definition %s: %w", name, err)
	}
	return true, nil
}

// isCopy reports whether a stored definition is Berth's copy of the host's. A tenant may set the label, too: the copy has objects that crd can
// read, in the same scope.
func isCopy(value []byte, crd *apiextensionsv1.CustomResourceDefinition) bool {
	var stored apiextensionsv1.CustomResourceDefinition
	if json.Unmarshal(value, &stored) != nil || stored.Labels[translate.LabelManagedBy] != translate.ManagedBy {
		return false
	}
	return stored.Spec.Scope == crd.Spec.Scope && stored.Spec.Names.Kind == crd.Spec.Names.Kind &&
		!slices.ContainsFunc(stored.Status.StoredVersions, func(version string) bool {
			return !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
		})
}

func (s *Space) moveObjects(ctx context.Context, prefix string) error {
	from, end := root+prefix, clientv3.GetPrefixRangeEnd(root+prefix)
	for {
		some, err := s.store.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("list them: %w", err)
		}
		for _, kv := range some.Kvs {
			key := string(kv.Key)
			if err := s.moveKey(ctx, key, root+sharedPrefix+strings.TrimPrefix(key, root)); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			from = key + "\x00"
		}
		if !some.More {
			return nil
		}
	}
}

// moveKey moves what is stored, as it is. If the same is there already, a process has ended before it deleted it here. If another object is
// there, a CRDShare of the name was in force before or after Berth made the copy. The one that was written last stays there.
func (s *Space) moveKey(ctx context.Context, from, to string) error {
	stored, err := s.store.Kubernetes.Get(ctx, from, kubernetes.GetOptions{})
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if stored.KV == nil {
		return nil
	}
	put, err := s.store.Kubernetes.OptimisticPut(ctx, to, stored.KV.Value, 0, kubernetes.PutOptions{GetOnFailure: true})
	if there := put.KV; err == nil && !put.Succeeded && there != nil && !bytes.Equal(there.Value, stored.KV.Value) {
		if there.ModRevision > stored.KV.ModRevision {
			return nil // the older one stays here, where the tenant finds it by a definition of its own
		}
		put, err = s.store.Kubernetes.OptimisticPut(ctx, to, stored.KV.Value, there.ModRevision, kubernetes.PutOptions{GetOnFailure: true})
		if err == nil && !put.Succeeded {
			err = errRaced
		}
	}
	if err != nil {
		return fmt.Errorf("store it as %s: %w", to, err)
	}
	return s.deleteKey(ctx, from, stored.KV.ModRevision)
}

func (s *Space) deleteKey(ctx context.Context, key string, revision int64) error {
	deleted, err := s.store.Kubernetes.OptimisticDelete(ctx, key, revision, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil {
		return fmt.Errorf("delete it: %w", err)
	}
	if !deleted.Succeeded {
		return fmt.Errorf("delete it: %w", errRaced)
	}
	return nil
}

// hasUnmoved reports whether some objects could not be moved.
func (s *Space) hasUnmoved() bool {
	s.ownersMu.Lock()
	defer s.ownersMu.Unlock()
	return len(s.unmoved) > 0
}

// checkMoved refuses requests for objects some of which could not be moved. The caller holds ownersMu.
func (s *Space) checkMoved(resource schema.GroupResource) error {
	if !s.unmoved[resource.String()] {
		return nil
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"objects of %s can't be used until Berth has moved them in the store of the space, which may be full; delete objects of other kinds, or ask the administrator of the platform. Berth retries",
		resource))
}
