// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
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

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/overlay"
	"github.com/berth-dev/berth/vcluster/registry"
)

// healthTimeout is upstream's default of --etcd-healthcheck-timeout.
const healthTimeout = 2 * time.Second

// Store is a space's store as the API server uses it: one etcd client for
// all resources, where upstream would dial once for each. The store compacts
// itself, where upstream's compactor would write to it every five minutes.
type Store struct {
	Kine   *kine.Store
	Client *kubernetes.Client
	Lists  *listCaches
	// Account is of the space; nil if it is bounded by nothing.
	Account  *bounds.Account
	watches  *clientWatches
	schemas  *schemaUse
	services once // whether their ports were counted
	// Tenant says how many namespaces there may be. It must not change once the store is used.
	Tenant *access.Source
	// Quota holds the space to the quota of its tenant; nil if nothing does. It must not change once the store is used.
	Quota *Quota
	// Shared has the definitions that the platform shares with the space; nil if it shares none, ever. It must not change once the
	// store is used.
	Shared     *overlay.Space
	namespaces namespacePlaces
	accesses   sync.Mutex
}

// New returns a store as an API server uses it. Close closes store, too. Nothing is bounded by a nil account.
func New(store *kine.Store, a *bounds.Account) *Store {
	client := *store.Client()
	client.Kubernetes = countingStore{client.Kubernetes}
	return &Store{Kine: store, Client: &client, Account: a, watches: &clientWatches{account: a},
		schemas: &schemaUse{account: a, reader: &registry.Reader{Client: client.Client}},
		Lists:   newListCaches(store.Used, a, clock.RealClock{})}
}

// Close ends caches and watches, and closes the store.
func (s *Store) Close() error {
	if s.Shared != nil {
		s.Shared.Close()
	}
	s.Lists.close()
	s.watches.work.Wait()
	return s.Kine.Close()
}

// Configure sets what the parts of upstream need that dial by themselves, such
// as the allocator of node ports. The URL resolves nowhere: it tells one space's
// store from another's, where upstream keeps things by URL.
func (s *Store) Configure(c *storagebackend.Config, space string) {
	c.Transport.ServerList = []string{"http://" + space + ".store.invalid:2379"}
	c.Transport.EgressLookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.Kine.DialContext(ctx, network, address)
		}, nil
	}
}

// Getter makes next's resources use the shared client.
func (s *Store) Getter(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return sharedGetter{next: next, store: s}
}

// CustomResources is [Store.Getter] for custom resources.
func (s *Store) CustomResources(next generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	if s.Shared == nil {
		return s.Getter(next)
	}
	return s.Shared.Resources(s.Getter(next))
}

type sharedGetter struct {
	next  generic.RESTOptionsGetter
	store *Store
}

func (g sharedGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.next.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.Decorator = builtin.Decorator(func(r builtin.Resource) (storage.Interface, factory.DestroyFunc, error) {
		opened, err := g.store.Open(r)
		return opened, func() {}, err
	})
	return options, nil
}

// Open opens the storage of a resource. It holds nothing that is to be closed.
func (s *Store) Open(r builtin.Resource) (storage.Interface, error) {
	versioner := storage.APIObjectVersioner{}
	store, err := etcd3.New(s.Client, s.Kine, r.Config.Codec, r.New, r.NewList, r.Config.Prefix, r.Prefix,
		r.Config.GroupResource, &yielding{Transformer: identity.NewEncryptCheckTransformer()}, r.Config.LeaseManagerConfig,
		accountedDecoder{etcd3.NewDefaultDecoder(r.Config.Codec, versioner)}, versioner)
	if err != nil {
		return nil, fmt.Errorf("set up storage of %s: %w", r.Config.GroupResource, err)
	}
	bounded := &boundedStorage{
		Interface: store, resource: r.Config.GroupResource, codec: r.Config.Codec, used: s.Kine.Used, account: s.Account, watches: s.watches,
	}
	if s.Shared != nil && r.Config.GroupResource == definitionsResource {
		return s.Shared.Definitions(s.boundedSchemas(bounded)), nil
	}
	if hasSchemaBytes(r.Config.GroupResource) {
		return s.boundedSchemas(bounded), nil
	}
	if r.Config.GroupResource == corev1.Resource("services") && s.Account != nil {
		return &boundedServices{boundedStorage: bounded, reader: &registry.Reader{Client: s.Client.Client}, count: &s.services}, nil
	}
	if r.Config.GroupResource == corev1.Resource("namespaces") {
		return s.openNamespaces(bounded), nil
	}
	if s.Quota != nil && Counts(r.Config.GroupResource) {
		return &countedObjects{bounded, s.Quota}, nil
	}
	if r.Config.GroupResource == v1alpha1.TenantAccesses {
		return &boundedAccesses{bounded, s.Client.Client, &s.accesses}, nil
	}
	if isStatefulSets(r.Config.GroupResource) {
		return &boundedStatefulSets{bounded}, nil
	}
	return bounded, nil
}

func (s *Store) openNamespaces(b *boundedStorage) storage.Interface {
	var opened storage.Interface = b
	if s.Tenant != nil {
		opened = &quotaNamespaces{b, s.Tenant, &registry.Reader{Client: s.Client.Client}, &s.namespaces}
	}
	if s.Shared != nil {
		opened = s.Shared.Namespaces(opened)
	}
	return opened
}

// boundedSchemas bounds what an API server holds of a resource, besides what is stored, if the space is bounded.
func (s *Store) boundedSchemas(b *boundedStorage) storage.Interface {
	if s.Account == nil {
		return b
	}
	return &boundedDefinitions{b, s.schemas}
}

// HealthCheck tells whether the store answers.
func (s *Store) HealthCheck() healthz.HealthChecker {
	return healthz.NamedCheck("etcd", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		_, err := s.Client.Client.Get(ctx, "/registry/health")
		return err
	})
}
