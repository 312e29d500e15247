// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
)

// page is how many keys are read at once.
const page = 500

// Namespaces returns the storage of namespaces. With a namespace, it deletes the objects in it whose definition is not in force: the
// controller of namespaces finds no others than those of definitions in force, and a new namespace of the name must not have any.
//
// Finalizers of these objects don't count. Nobody can remove them before the definition is in force again.
func (s *Space) Namespaces(next storage.Interface) storage.Interface {
	return &namespaceStorage{next, s}
}

type namespaceStorage struct {
	storage.Interface
	space *Space
}

// Delete implements [storage.Interface]. However a namespace is deleted, this comes last. If it fails, it can be repeated.
func (n *namespaceStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return n.Interface.Delete(ctx, key, out, preconditions, func(ctx context.Context, object runtime.Object) error {
		if err := validate(ctx, object); err != nil {
			return err
		}
		if err := n.space.empty(bounds.WithReservation(ctx, nil), path.Base(key)); err != nil {
			return storage.NewInternalError(fmt.Errorf("delete objects in the namespace %s: %w", path.Base(key), err))
		}
		return nil
	}, cached, opts)
}

// empty deletes all objects in a namespace whose resources are defined by the space and by the platform. Those of the definition in
// force are gone already, unless another one has come into force since.
func (s *Space) empty(ctx context.Context, namespace string) error {
	set, _ := s.current()
	for _, name := range set.Names() {
		crd := set.Of(name).CRD
		if err := s.deleteAll(ctx, root+crd.Spec.Group+"/"+crd.Spec.Names.Plural+"/"+namespace+"/"); err != nil {
			return err
		}
	}
	stored, err := s.sharedResources(ctx, "")
	if err != nil {
		return err
	}
	for _, resource := range stored {
		if err := s.deleteAll(ctx, root+sharedPrefix+resource+"/"+namespace+"/"); err != nil {
			return err
		}
	}
	return nil
}

// sharedResources returns the resources, as group and plural, of which the store has objects of shared definitions, and which begin with a
// prefix. Their definitions may no longer be shared, so the store is asked.
func (s *Space) sharedResources(ctx context.Context, prefix string) ([]string, error) {
	var resources []string
	from, end := root+sharedPrefix+prefix, clientv3.GetPrefixRangeEnd(root+sharedPrefix+prefix)
	for {
		first, err := s.store.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("look for objects of shared definitions: %w", err)
		}
		if len(first.Kvs) == 0 {
			return resources, nil
		}
		parts := strings.SplitN(strings.TrimPrefix(string(first.Kvs[0].Key), root+sharedPrefix), "/", 3)
		if len(parts) < 3 || !strings.Contains(parts[0], ".") { // of a definition of the space whose group is like the prefix
			from = clientv3.GetPrefixRangeEnd(root + sharedPrefix + parts[0] + "/")
			continue
		}
		resources = append(resources, parts[0]+"/"+parts[1])
		from = clientv3.GetPrefixRangeEnd(root + sharedPrefix + parts[0] + "/" + parts[1] + "/")
	}
}

// deleteAll deletes what has a prefix.
func (s *Space) deleteAll(ctx context.Context, prefix string) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		some, err := s.store.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, kv := range some.Kvs {
			deleted, err := s.store.Kubernetes.OptimisticDelete(ctx, string(kv.Key), kv.ModRevision, kubernetes.DeleteOptions{GetOnFailure: true})
			if err != nil {
				return fmt.Errorf("delete %s: %w", kv.Key, err)
			}
			if !deleted.Succeeded {
				return fmt.Errorf("delete %s: somebody changes it", kv.Key)
			}
			from = string(kv.Key) + "\x00"
		}
		if !some.More {
			return nil
		}
	}
}
