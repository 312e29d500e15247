// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/vcluster/informer"
)

// Page is how many objects are read at once.
const Page = 200

// Reader reads objects from a space's store.
type Reader struct {
	Client *clientv3.Client
}

// Get returns what is stored, or nil.
func (s *Reader) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := s.Client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if len(r.Kvs) == 0 {
		return nil, nil
	}
	return r.Kvs[0].Value, nil
}

// Scan hands objects to f until it returns false. It reads a page of them at once.
func (s *Reader) Scan(ctx context.Context, prefix string, page int64, f func(key string, value []byte) bool) error {
	next, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		r, err := s.Client.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, kv := range r.Kvs {
			if !f(string(kv.Key), kv.Value) {
				return nil
			}
		}
		if !r.More || len(r.Kvs) == 0 {
			return nil
		}
		next = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// List returns all objects of a built-in resource.
func List[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, s *Reader, v schema.GroupVersion, resource string) (objects []P, err error) {
	err = Each(ctx, s, v, resource, Page, func(object P) { objects = append(objects, object) })
	return objects, err
}

// Each calls f with each object that is in the store, of which it holds a page as stored and one object.
func Each[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, s *Reader, v schema.GroupVersion, resource string, page int64, f func(P)) (err error) {
	prefix := informer.Prefix(v.WithResource(resource).GroupResource())
	scanErr := s.Scan(ctx, prefix, page, func(key string, value []byte) bool {
		object := P(new(T))
		if err = Decode(value, v, object); err != nil {
			err = fmt.Errorf("read %s: %w", key, err)
			return false
		}
		f(object)
		return true
	})
	if scanErr != nil {
		return scanErr
	}
	return err
}

// Decode decodes what is stored into an object of a version.
func Decode(value []byte, v schema.GroupVersion, into runtime.Object) error {
	return runtime.DecodeInto(legacyscheme.Codecs.UniversalDecoder(v), value, into)
}
