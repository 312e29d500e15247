// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/translate"
)

// moveRetry is how long to wait before objects that could not be moved are moved again.
const moveRetry = 10 * time.Second

var errRaced = errors.New("another process writes to the store, too")

// moveCopies moves the objects of copied definitions to where those of shared definitions are. Berth used to copy the
// host's definition into a space for each kind that it syncs. Now it shares these definitions. A definition of such a
// name without Berth's label is the tenant's. It stays, and is hidden with its objects.
//
// The copy is deleted last, so that this is done again if the process ends before. Objects that could not be moved stay
// where they are. Until they are moved, nobody can read or write objects of the definition: a list without them would
// mean that they were deleted. It reports whether something was moved.
func (s *Space) moveCopies(ctx context.Context, set *definitions.Set) (moved bool) {
	ctx = bounds.WithReservation(ctx, nil) // it is not a request's
	unmoved := map[string]bool{}
	for _, name := range set.Names() {
		if !set.Of(name).Synced {
			continue
		}
		found, err := s.moveCopy(ctx, name)
		moved = moved || found
		if err != nil {
			unmoved[name] = true
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
func (s *Space) moveCopy(ctx context.Context, name string) (found bool, err error) {
	stored, err := s.store.Kubernetes.Get(ctx, ownPrefix+name, kubernetes.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the definition %s: %w", name, err)
	}
	if stored.KV == nil || !isCopy(stored.KV.Value) {
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

// isCopy reports whether a stored definition is Berth's copy of the host's.
func isCopy(value []byte) bool {
	var stored metav1.PartialObjectMetadata
	return json.Unmarshal(value, &stored) == nil && stored.Labels[translate.LabelManagedBy] == translate.ManagedBy
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

// moveKey moves what is stored, as it is. If something is there already, either a process has ended before it deleted the same here, or a
// CRDShare of the name was in force before Berth made the copy: then what the copy has is what the tenant and the host know.
func (s *Space) moveKey(ctx context.Context, from, to string) error {
	stored, err := s.store.Kubernetes.Get(ctx, from, kubernetes.GetOptions{})
	if err != nil {
		return fmt.Errorf("read it: %w", err)
	}
	if stored.KV == nil {
		return nil
	}
	put, err := s.store.Kubernetes.OptimisticPut(ctx, to, stored.KV.Value, 0, kubernetes.PutOptions{GetOnFailure: true})
	if err == nil && !put.Succeeded && put.KV != nil && !bytes.Equal(put.KV.Value, stored.KV.Value) {
		put, err = s.store.Kubernetes.OptimisticPut(ctx, to, stored.KV.Value, put.KV.ModRevision, kubernetes.PutOptions{GetOnFailure: true})
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
