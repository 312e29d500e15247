// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
)

// healthTimeout is upstream's default of --etcd-healthcheck-timeout.
const healthTimeout = 2 * time.Second

// sharedStore is a space's store as the API server uses it: one etcd client for
// all resources, where upstream would dial once for each. The store compacts
// itself, where upstream's compactor would write to it every five minutes.
type sharedStore struct {
	store  *kine.Store
	client *kubernetes.Client
	lists  *listCaches
	// account is of the space; nil if it is bounded by nothing.
	account  *bounds.Account
	watches  *clientWatches
	schemas  *schemaUse
	services once // whether their ports were counted
}

func newSharedStore(store *kine.Store, a *bounds.Account) *sharedStore {
	client := *store.Client()
	client.Kubernetes = countingStore{client.Kubernetes}
	return &sharedStore{store: store, client: &client, account: a, watches: &clientWatches{account: a},
		schemas: &schemaUse{account: a, reader: &storeReader{client.Client}},
		lists:   newListCaches(store.Used, a, clock.RealClock{})}
}

func (s *sharedStore) close() error {
	s.lists.close()
	s.watches.work.Wait()
	return s.store.Close()
}

// configure sets what the parts of upstream need that dial by themselves, such
// as the allocator of node ports. The URL resolves nowhere: it tells one space's
// store from another's, where upstream keeps things by URL.
func (s *sharedStore) configure(c *storagebackend.Config, space string) {
	c.Transport.ServerList = []string{"http://" + space + ".store.invalid:2379"}
	c.Transport.EgressLookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.store.DialContext(ctx, network, address)
		}, nil
	}
}

// getter makes next's resources use the shared client.
func (s *sharedStore) getter(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return sharedGetter{next: next, store: s}
}

type sharedGetter struct {
	next  generic.RESTOptionsGetter
	store *sharedStore
}

func (g sharedGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.next.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.Decorator = builtin.Decorator(func(r builtin.Resource) (storage.Interface, factory.DestroyFunc, error) {
		opened, err := g.store.open(r)
		return opened, func() {}, err
	})
	return options, nil
}

// open opens the storage of a resource. It holds nothing that is to be closed.
func (s *sharedStore) open(r builtin.Resource) (storage.Interface, error) {
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(s.client, s.store, r.Config.Codec, r.New, r.NewList, r.Config.Prefix, r.Prefix,
		r.Config.GroupResource, &yielding{Transformer: identity.NewEncryptCheckTransformer()}, r.Config.LeaseManagerConfig,
		accountedDecoder{etcd3.NewDefaultDecoder(r.Config.Codec, versioner)}, versioner)
	if err != nil {
		return nil, fmt.Errorf("set up storage of %s: %w", r.Config.GroupResource, err)
	}
	bounded := &boundedStorage{
		Interface: store, resource: r.Config.GroupResource, codec: r.Config.Codec, used: s.store.Used, account: s.account, watches: s.watches,
	}
	if s.account != nil && hasSchemaBytes(r.Config.GroupResource) {
		return &boundedDefinitions{bounded, s.schemas}, nil
	}
	if r.Config.GroupResource == corev1.Resource("services") && s.account != nil {
		return &boundedServices{boundedStorage: bounded, reader: &storeReader{s.client.Client}, count: &s.services}, nil
	}
	if isStatefulSets(r.Config.GroupResource) {
		return &boundedStatefulSets{bounded}, nil
	}
	return bounded, nil
}

// healthCheck tells whether the store answers.
func (s *sharedStore) healthCheck() healthz.HealthChecker {
	return healthz.NamedCheck("etcd", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		_, err := s.client.Client.Get(ctx, "/registry/health")
		return err
	})
}
