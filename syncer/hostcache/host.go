// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Host is a shard's view of the host cluster: one set of watches for all of its spaces. It is safe for concurrent use
// after it has started.
type Host struct {
	Options
	config  *rest.Config
	mapper  meta.RESTMapper
	Reader  client.Client
	cancel  context.CancelFunc // ends the watches
	running sync.WaitGroup
	watches map[string]hostWatch // by watched resource
	// Definitions are those of the synced extensions, by resource. Start sets them. Spaces share them.
	Definitions map[string]*definitions.Shared
	Routers     map[string]*Router
	sleepers    sleepers
	followers   followers
	short       sync.Map // the names of spaces of which a quota has rejected something
	// stale are the spaces' host objects of disabled resources. The values are *metav1.PartialObjectMetadata. Start
	// sets them.
	stale    sync.Map
	reach    *reach
	declared declared
	own      ownSpaces
}

// Options configure what is synced of all spaces of a host. The zero value means the default of each resource.
type Options struct {
	Sync resources.SyncOptions
	// IngressAnnotations are the keys of the annotations that are synced with ingresses. They configure a controller
	// that all spaces share, and with some of them, the author can run code in it.
	IngressAnnotations []string
	// QuotaChanged, if set, is called for each space whose quota on the host, or its usage, has changed. It must not
	// block.
	QuotaChanged func(space string)
	// QuotaEased, if set, is called for each space whose quota on the host allows more, or of which less is used. It must not block.
	QuotaEased func(space string)
	// VolumeChanged, if set, is called for each space of which a volume was added or changed. It must not block.
	VolumeChanged func(space string)
	// Only is the name of the only space that is synced, if the configuration has the rights of that space's account.
	// Then, only the space's host namespace is watched, except for cluster-scoped resources, and resources by which
	// others claim host names. If it is empty, all namespaces are watched.
	Only string
	// OwnOnly means that other processes have spaces of the host, too. Then, the cache contains the objects of those
	// spaces that [Host.Own] makes this process's. Of other spaces, it has the addresses of pods, and claims of host names.
	OwnOnly bool
}

// NewHost prepares the watches on the cluster of config. The account of config must be allowed to impersonate the
// spaces' accounts, and to read: objects of synced resources with the space label, in all namespaces, and all events,
// volumes, classes, nodes, ingresses, gateways, and routes. Ingresses are also read when only gateways are synced,
// because both claim host names.
func NewHost(config *rest.Config, o Options) (*Host, error) {
	config = rest.CopyConfig(config)
	reach := &reach{}
	config.Wrap(reach.wrap)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	config.UserAgent = "berth-syncer"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	h := &Host{
		Options: o, config: config, reach: reach, Definitions: map[string]*definitions.Shared{},
		watches: map[string]hostWatch{}, Routers: map[string]*Router{}, own: ownSpaces{of: map[string]*ownSpace{}},
	}
	h.mapper = &declaredMapper{newMapper(), h}
	var err error
	if h.Reader, err = newClient(config, h.mapper); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	watches, err := hostWatches(config)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	for _, r := range resources.Table() {
		if r.Type == nil || !o.Sync.Watched(r) {
			continue
		}
		if r.Name == resources.Nodes && o.Sync.Value(resources.Nodes) != resources.All {
			continue // virtual nodes are made from pods
		}
		changed := h.sleepers.changed
		if r.Quiet {
			changed = nil // see OnChange
		}
		h.watches[r.Name] = watches[r.Name]
		h.Routers[r.Name] = h.newRouter(r.Name, changed)
		if r.Name == resources.Nodes {
			h.WatchNodes(h.Routers[r.Name])
		}
		if r.Name == resources.Volumes && o.VolumeChanged != nil {
			h.Routers[r.Name].Follow = func(_, is client.Object) {
				if is != nil && spaceOf(is) != "" {
					o.VolumeChanged(spaceOf(is))
				}
			}
		}
	}
	h.watches[Quotas] = watches[Quotas]
	h.Routers[Quotas] = h.newRouter(Quotas, nil)
	h.watchQuotas(h.Routers[Quotas], o.QuotaChanged, o.QuotaEased)
	return h, nil
}

// namespaceOf returns the namespace in which a resource is watched; empty for all.
func (h *Host) namespaceOf(resource string) string {
	if r := resources.Of(resource); r.InCluster || r.Exposure != nil {
		return metav1.NamespaceAll
	}
	return h.ownNamespace()
}

// ownNamespace returns the namespace of the only space; empty, for all namespaces, if there are several.
func (h *Host) ownNamespace() string {
	if h.Only == "" {
		return metav1.NamespaceAll
	}
	return translate.Space{Name: h.Only}.HostNamespace()
}

// indexes returns the indexes of a resource, in addition to those by namespace and by space.
func indexes(resource string) cache.Indexers {
	switch resource {
	case resources.Pods:
		return cache.Indexers{
			indexAddress: podsBy(podAddresses, func(o *otherObject) []string { return o.Addresses }), IndexNamespace: indexBy(VirtualNamespace[*corev1.Pod]),
			IndexBudget: indexBy(podBudget), indexNode: podsBy(nodeAddressesOfPod, func(o *otherObject) []string { return o.Nodes }),
		}
	case resources.Nodes:
		return cache.Indexers{indexNode: indexBy(nodeAddresses)}
	case resources.Budgets:
		return cache.Indexers{IndexNamespace: indexBy(VirtualNamespace[*policyv1.PodDisruptionBudget])}
	case resources.Services:
		return cache.Indexers{indexAddress: indexBy(serviceAddresses), IndexNamespace: indexBy(VirtualNamespace[*corev1.Service])}
	case resources.EndpointSlices:
		return cache.Indexers{indexAddress: indexBy(sliceAddresses), IndexService: indexBy(SliceService)}
	default:
		if resources.Of(resource).Exposure != nil {
			return cache.Indexers{indexHosts: indexClaims}
		}
		return nil
	}
}

// Start starts the watches, and returns when they have synced, or with an error when ctx ends or the host rejects one.
// They run until Stop. With [Options.OwnOnly], the spaces for which [Host.Own] was called before are in the cache then.
func (h *Host) Start(ctx context.Context) error {
	if err := errors.Join(h.extend(ctx), h.findStale(ctx, h.ownNamespace(), h.keepsStaleOf)); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	filled := h.startOwn(run)
	for name, f := range h.Routers {
		from := h.watches[name]
		safego.Go(&h.running, "watch the host", func() { f.Watch(run, name, from.lister(h.namespaceOf(name)), from.of) }, nil)
	}
	for name, f := range h.Routers {
		if err := f.AwaitFilled(ctx, name); err != nil {
			h.Stop()
			return err
		}
	}
	filled()
	return nil
}

// Stop stops the watches, and waits for them.
func (h *Host) Stop() {
	if h.cancel != nil {
		h.cancel()
	}
	h.stopDeclared()
	h.stopOwn()
	h.running.Wait()
}

// Pack reduces the memory that the objects of sleeping spaces take. The caller collects garbage before and afterwards.
func (h *Host) Pack(spaces []string) error {
	for resource, f := range h.Routers {
		for _, space := range spaces {
			if err := f.Repack(space); err != nil {
				return fmt.Errorf("pack %s of space %s: %w", resource, space, err)
			}
		}
	}
	return nil
}

// Get returns a host object from the shared watches; ok is false if it is not there.
func Get[T client.Object](h *Host, resource, namespace, name string) (obj T, ok bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	f := h.Router(resource)
	if f == nil {
		return obj, false // it is disabled
	}
	obj, ok = f.Get(key).(T)
	return obj, ok
}

// Of iterates over a space's host objects of a resource in the shared watches.
func Of[T client.Object](h *Host, space, resource string) iter.Seq[T] {
	return func(yield func(T) bool) {
		f := h.Router(resource)
		if f == nil {
			return
		}
		for item := range f.Of(space) {
			if obj, ok := item.(T); ok && !yield(obj) {
				return
			}
		}
	}
}

// spaceOf returns the space that a host object concerns; "" if there is none.
func spaceOf(obj client.Object) string {
	if resources.IsClass(obj) {
		if own, ok := translate.IdentityOf(obj); ok {
			return own.Space
		}
		return EverySpace
	}
	switch o := obj.(type) {
	case *corev1.Node:
		return EverySpace
	case *corev1.Event:
		return spaceIn(o.Namespace)
	case *corev1.ResourceQuota:
		return spaceIn(o.Namespace)
	case *corev1.PersistentVolume:
		if o.Spec.ClaimRef == nil {
			return ""
		}
		return spaceIn(o.Spec.ClaimRef.Namespace)
	default:
		space := spaceIn(o.GetNamespace())
		if o.GetLabels()[translate.LabelSpace] != space {
			return "" // foreign, or only labeled as if it belonged to the space
		}
		return space
	}
}

// spaceIn returns the space of a host namespace; "" if it belongs to none.
func spaceIn(namespace string) string {
	space, found := strings.CutPrefix(namespace, translate.HostNamespacePrefix)
	if !found {
		return ""
	}
	return space
}

// NewRouter returns a router of a resource's host objects, which keeps only what readers need.
func NewRouter(resource string, changed func(space string)) *Router {
	r := newRouter(spaceOf, changed, indexes(resource))
	r.Trim = trim
	return r
}

// newRouter returns a router of the host's objects of a watched resource.
func (h *Host) newRouter(resource string, changed func(space string)) *Router {
	r := NewRouter(resource, changed)
	if resource == resources.ConfigMaps || resource == resources.Secrets {
		r.page = dataPage
	}
	if h.OwnOnly {
		r.own = h.IsOwn
	}
	if from := h.watches[resource]; from.api != nil && resource != resources.Nodes {
		r.clusterScoped = resources.Of(resource).InCluster
		r.list = func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return from.lister(namespace).ListWithContext(ctx, o)
		}
	}
	return r
}

// trim removes what no reader needs, to save memory: managed fields, the data of config maps and secrets, and the
// contents of events, volumes, and exposures that belong to no space.
func trim(o client.Object) client.Object {
	o.SetManagedFields(nil)
	DigestData(o)
	if q, ok := o.(*corev1.ResourceQuota); ok {
		o = leftOf(q)
	}
	if spaceOf(o) == "" {
		switch it := o.(type) {
		case *corev1.Event:
			o = &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: it.Namespace, Name: it.Name, UID: it.UID, ResourceVersion: it.ResourceVersion}}
		case *corev1.PersistentVolume:
			o = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: it.Name, UID: it.UID, ResourceVersion: it.ResourceVersion}}
		default:
			if r, ok := resources.ToHostOf(o); ok && r.Exposure != nil {
				o = claimsOnly(r.Exposure, o)
			}
		}
	}
	Pack(o)
	return o
}

// newClient returns a client without discovery, because the kinds are known, and a space should not wait for
// unnecessary requests.
func newClient(config *rest.Config, mapper meta.RESTMapper) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", "" // the fastest one for each kind
	return client.New(config, client.Options{Scheme: resources.Scheme(), Mapper: mapper})
}

// NewClient returns a client, of the host or of a space, for the kinds that are synced.
func (h *Host) NewClient(config *rest.Config) (client.Client, error) {
	return newClient(config, h.mapper)
}

// newMapper maps the kinds that are synced, and others that syncers read or write.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, r := range resources.Table() {
		if r.Type == nil {
			continue
		}
		kind, scope := r.GVK(), meta.RESTScope(meta.RESTScopeNamespace)
		if r.InCluster {
			scope = meta.RESTScopeRoot
		}
		m.AddSpecific(kind, r.GVR(), kind.GroupVersion().WithResource(strings.ToLower(kind.Kind)), scope)
	}
	for _, k := range sharing.Kinds() {
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if k.ClusterScoped {
			scope = meta.RESTScopeRoot
		}
		m.Add(k.GroupVersionKind, scope)
	}
	m.Add(v1alpha1.GroupVersion.WithKind("SharedObject"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), meta.RESTScopeRoot)
	m.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	return m
}

// MetadataList returns an empty list of the metadata of one kind.
func MetadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return all
}
