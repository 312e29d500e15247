// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
)

var _ sharing.Source = &ControlPlane{}

// EachShared implements [sharing.Source]. It looks for the key of the label in what is stored, so that it needs no informer.
func (p *ControlPlane) EachShared(ctx context.Context, f func(sharing.Name)) error {
	store := &registry.Reader{Client: p.store.Client.Client}
	for prefix, resource := range sharable() {
		err := store.Scan(ctx, prefix, registry.Page, func(key string, value []byte) bool {
			if isMarked(value) {
				f(nameOf(key, prefix, resource))
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("look for shared %s of %s: %w", resource, p.config.Name, err)
		}
	}
	return nil
}

// FollowShared implements [sharing.Source].
func (p *ControlPlane) FollowShared(changed func(sharing.Name), lost func()) {
	p.chain.informers.pool.Feed().Observe(&shares{prefixes: sharable(), changed: changed, lost: lost})
}

// shares is an observer of the store. It remembers nothing.
type shares struct {
	prefixes map[string]string
	changed  func(sharing.Name)
	lost     func()
}

// Wrote implements [informer.Observer].
func (s *shares) Wrote(w informer.Write) {
	if !isMarked(w.Value) && !isMarked(w.Before) {
		return
	}
	for prefix, resource := range s.prefixes {
		if strings.HasPrefix(w.Key, prefix) {
			s.changed(nameOf(w.Key, prefix, resource))
		}
	}
}

// Lost implements [informer.Observer].
func (s *shares) Lost() { s.lost() }

// sharable returns the resources whose objects can be shared, by where they are stored.
func sharable() map[string]string {
	all := map[string]string{}
	for _, kind := range sharing.Kinds() {
		all[informer.Prefix(kind.GroupResource())] = kind.Resource
	}
	return all
}

func isMarked(value []byte) bool { return bytes.Contains(value, []byte(v1alpha1.LabelShare)) }

func nameOf(key, prefix, resource string) sharing.Name {
	rest := strings.TrimPrefix(key, prefix)
	if namespace, name, ok := strings.Cut(rest, "/"); ok {
		return sharing.Name{Resource: resource, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	return sharing.Name{Resource: resource, NamespacedName: types.NamespacedName{Name: rest}}
}
