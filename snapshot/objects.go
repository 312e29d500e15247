// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/kine"
)

const (
	// registry is upstream's prefix of all keys.
	registry = "/registry/"
	// page is how many objects are read at once.
	page = 200
)

// verdict says what happens to an object.
type verdict int

const (
	keep verdict = iota
	write
	drop
)

// stored is an object as it is in a store.
type stored struct {
	key      string
	value    []byte
	revision int64
}

// objects reads and writes a store like an API server that nobody watches.
type objects struct {
	client     *kubernetes.Client
	serializer *protobuf.Serializer
}

func newObjects(store *kine.Store) *objects {
	return &objects{client: store.Client(), serializer: protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)}
}

var errRaced = errors.New("somebody else writes to the store")

// each calls decide for each object under prefix, if it ends with a slash, or for the object with this key, and does
// what decide returns. If the object is to be written, decide has set its new value.
func (s *objects) each(ctx context.Context, prefix string, decide func(*stored) (verdict, error)) error {
	prefix = registry + prefix
	if !strings.HasSuffix(prefix, "/") {
		found, err := s.client.Kubernetes.Get(ctx, prefix, kubernetes.GetOptions{})
		if err != nil {
			return fmt.Errorf("read %s: %w", prefix, err)
		}
		if found.KV == nil {
			return nil
		}
		return s.decide(ctx, found.KV, decide)
	}
	for from := ""; ; {
		list, err := s.client.Kubernetes.List(ctx, prefix, kubernetes.ListOptions{Limit: page, Continue: from})
		if err != nil {
			return fmt.Errorf("read %s: %w", prefix, err)
		}
		for _, kv := range list.Kvs {
			if err := s.decide(ctx, kv, decide); err != nil {
				return err
			}
			from = string(kv.Key) + "\x00"
		}
		if len(list.Kvs) == 0 { // a shorter list may be one that is cut because of its size
			return nil
		}
	}
}

func (s *objects) decide(ctx context.Context, kv *mvccpb.KeyValue, decide func(*stored) (verdict, error)) error {
	o := &stored{key: string(kv.Key), value: kv.Value, revision: kv.ModRevision}
	verdict, err := decide(o)
	if err == nil {
		err = s.apply(ctx, o, verdict)
	}
	if err != nil {
		return fmt.Errorf("change %s: %w", o.key, err)
	}
	return nil
}

func (s *objects) apply(ctx context.Context, o *stored, v verdict) error {
	succeeded := true
	switch v {
	case keep:
	case write:
		response, err := s.client.Kubernetes.OptimisticPut(ctx, o.key, o.value, o.revision, kubernetes.PutOptions{GetOnFailure: true})
		if err != nil {
			return err
		}
		succeeded = response.Succeeded
	case drop:
		response, err := s.client.Kubernetes.OptimisticDelete(ctx, o.key, o.revision, kubernetes.DeleteOptions{GetOnFailure: true})
		if err != nil {
			return err
		}
		succeeded = response.Succeeded
	}
	if !succeeded {
		return errRaced
	}
	return nil
}

// change decodes an object, calls f to change it, and encodes it.
func (s *objects) change(ctx context.Context, o *stored, f func(context.Context, runtime.Object) (verdict, error)) (verdict, error) {
	object, kind, err := s.serializer.Decode(o.value, nil, nil)
	if err != nil {
		return keep, err
	}
	verdict, err := f(ctx, object)
	if err != nil || verdict != write {
		return verdict, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	var encoded bytes.Buffer
	if err := s.serializer.Encode(object, &encoded); err != nil {
		return keep, err
	}
	o.value = encoded.Bytes()
	return write, nil
}
