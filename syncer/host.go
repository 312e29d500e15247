// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// ServiceAccount is the name of the account, in each space's host namespace,
// that the space's syncer writes as.
const ServiceAccount = "berth-syncer"

// Host is the shared host cluster as a shard sees it: one set of watches for
// all its spaces. It is safe for concurrent use once started.
type Host struct {
	config *rest.Config
	sync   resources.SyncOptions
	// only is the one space that this host is for, see Options.Only.
	only string
	// annotations of ingresses that go along to the host.
	annotations []string
	mapper      meta.RESTMapper
	reader      client.Client
	cancel      context.CancelFunc // ends the watches
	running     sync.WaitGroup
	watches     map[string]hostWatch // of each resource that is watched
	// definitions of the extensions that are synced, by resource; set by Start.
	definitions map[string]*apiextensionsv1.CustomResourceDefinition
	routers     map[string]*hostcache.Router
	sleepers    sleepers
	followers   followers
	requests    *fairSlots
	short       sync.Map // of the spaces, by name, of which a quota refused something
	writers     sync.Map // of the spaces that are synced, by name: each a *writer
	// stale are the host objects that spaces have of disabled resources, by object:
	// each a *metav1.PartialObjectMetadata; set by Start.
	stale sync.Map
	reach *reach
}

// Options say what spaces share of a host, and how. The zero value has every
// resource at its default.
type Options struct {
	Sync resources.SyncOptions
	// IngressAnnotations are the keys of the annotations that go along with an
	// ingress. They are commands to a controller that all spaces share: some let
	// their author run code in it.
	IngressAnnotations []string
	// QuotaChanged, if set, is told of each space whose quota on the host, or what is used of it, is another than before.
	// It must not block.
	QuotaChanged func(space string)
	// Only is the name of the one space that is synced, if the configuration reaches the host as that space's own account.
	// Watches are then of the space's host namespace, except for those of resources that are in no namespace, and of those by
	// which others claim host names. If it is empty, they are of all namespaces.
	Only string
}

// NewHost prepares the watches on the cluster that config reaches. The account
// of config may impersonate the spaces' accounts, and reads, of the resources that
// are synced, objects that bear the space label in all namespaces, and all
// events, volumes, classes, nodes, ingresses, gateways and routes. Ingresses it
// reads for gateways, too: both claim host names.
func NewHost(config *rest.Config, o Options) (*Host, error) {
	config = rest.CopyConfig(config)
	reach := &reach{}
	config.Wrap(reach.wrap)
	config.QPS = -1 // the host's own priority and fairness decides
	config.UserAgent = "berth-syncer"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	mapper := newMapper()
	reader, err := newClient(config, mapper)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	h := &Host{
		config: config, sync: o.Sync, only: o.Only, annotations: o.IngressAnnotations, reach: reach,
		mapper: mapper, reader: reader, definitions: map[string]*apiextensionsv1.CustomResourceDefinition{},
		watches: map[string]hostWatch{}, routers: map[string]*hostcache.Router{},
		requests: newFairSlots(hostRequests, workers),
	}
	watches, err := hostWatches(clientset, config)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	for name, from := range watches {
		if !o.Sync.On(name) && !watchedAlways(name) && (name != ingresses || !o.Sync.On(gateways)) {
			continue
		}
		if name == nodes && o.Sync.Value(nodes) != resources.All {
			continue // virtual nodes are of what pods say
		}
		changed := h.sleepers.changed
		if name == events || name == budgets || name == nodes || isClass(name) {
			changed = nil // see OnChange
		}
		h.watches[name] = from
		h.routers[name] = newTrimmedRouter(spaceOf, changed, indexes(name))
		if name == nodes {
			h.watchNodes(h.routers[name])
		}
	}
	h.watches[quotas] = hostWatch{clientset.CoreV1().RESTClient(), quotas, &corev1.ResourceQuota{}, ""}
	h.routers[quotas] = newTrimmedRouter(spaceOf, nil, nil)
	h.watchQuotas(h.routers[quotas], o.QuotaChanged)
	return h, nil
}

// namespaceOf is the namespace in which a resource is watched; all if it is empty.
func (h *Host) namespaceOf(resource string) string {
	if clusterScoped(resource) || slices.Contains(exposures(), resource) {
		return metav1.NamespaceAll
	}
	return h.ownNamespace()
}

// ownNamespace is that of the one space whose account this is; empty, which is all namespaces, if it is that of many.
func (h *Host) ownNamespace() string {
	if h.only == "" {
		return metav1.NamespaceAll
	}
	return translate.Space{Name: h.only}.HostNamespace()
}

// indexes are those of a resource, besides its objects' namespaces and spaces.
func indexes(resource string) cache.Indexers {
	switch resource {
	case pods:
		return cache.Indexers{indexAddress: indexBy(podAddresses), indexNamespace: indexBy(virtualNamespace[*corev1.Pod]), indexBudget: indexBy(podBudget), indexNode: indexBy(nodeAddressesOfPod)}
	case nodes:
		return cache.Indexers{indexNode: indexBy(nodeAddresses)}
	case budgets:
		return cache.Indexers{indexNamespace: indexBy(virtualNamespace[*policyv1.PodDisruptionBudget])}
	case services:
		return cache.Indexers{indexAddress: indexBy(serviceAddresses), indexNamespace: indexBy(virtualNamespace[*corev1.Service])}
	case endpointSlices:
		return cache.Indexers{indexAddress: indexBy(sliceAddresses), indexService: indexBy(sliceService)}
	case ingresses, gateways, httpRoutes:
		return cache.Indexers{indexHosts: indexClaims}
	default:
		return nil
	}
}

// watchedAlways reports whether other resources' work reads this one's watch.
func watchedAlways(name string) bool {
	return name == pods || name == services || name == endpointSlices || name == secrets || name == claims
}

func isClass(name string) bool {
	return name == storageClasses || name == ingressClasses || name == runtimeClasses || name == priorityClasses || name == snapshotClasses || name == gatewayClasses
}

// Start begins the watches and returns when they have caught up, or with an
// error when ctx ends before or the host refuses one. They go on until Stop.
func (h *Host) Start(ctx context.Context) error {
	if err := errors.Join(h.extend(ctx), h.findStale(ctx)); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	for name, f := range h.routers {
		from := h.watches[name]
		safego.Go(&h.running, "watch the host", func() { f.Watch(run, name, from.lister(h.namespaceOf(name)), from.of) }, nil)
	}
	for name, f := range h.routers {
		if err := f.AwaitFilled(ctx, name); err != nil {
			h.Stop()
			return err
		}
	}
	return nil
}

// Stop ends the watches and waits for them.
func (h *Host) Stop() {
	if h.cancel != nil {
		h.cancel()
	}
	h.running.Wait()
}

// Pack makes what is held of spaces that sleep take less memory. The caller
// collects garbage before and afterwards.
func (h *Host) Pack(spaces []string) error {
	for resource, f := range h.routers {
		for _, space := range spaces {
			if err := f.Repack(space); err != nil {
				return fmt.Errorf("pack %s of space %s: %w", resource, space, err)
			}
		}
	}
	return nil
}

// as is a client that acts as the space's own account: its syncer's, if it has
// one, so that the syncer knows of the write.
func (h *Host) as(space translate.Space) (*writer, error) {
	if w, ok := h.writers.Load(space.Name); ok {
		return w.(*writer), nil
	}
	account, err := h.newAccount(space, nil)
	if err != nil {
		return nil, err
	}
	return newWriter(account, h), nil
}

// newAccount is a client that acts as the space's own account, as fast as its limits and the other spaces let it.
func (h *Host) newAccount(space translate.Space, limits *bounds.Account) (client.Client, error) {
	config := h.Account(space)
	paced := newPaced(h.requests, space.Name, limits)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return paced.through(to) })
	return newClient(config, h.mapper)
}

// cached reads a host object from the shared watches; ok is false if it is not there.
func cached[T client.Object](h *Host, resource, namespace, name string) (obj T, ok bool) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	f := h.routers[resource]
	if f == nil {
		return obj, false // it is disabled
	}
	obj, ok = f.Get(key).(T)
	return obj, ok
}

// hosted are the space's host objects of a resource, of the shared watches.
func hosted[T client.Object](s *Syncer, resource string) iter.Seq[T] {
	return func(yield func(T) bool) {
		f := s.host.routers[resource]
		if f == nil {
			return
		}
		for item := range f.Of(s.space.Name) {
			if obj, ok := item.(T); ok && !yield(obj) {
				return
			}
		}
	}
}

// spaceOf finds the space that a host object concerns, "" if none.
func spaceOf(obj client.Object) string {
	switch o := obj.(type) {
	case *storagev1.StorageClass, *networkingv1.IngressClass, *nodev1.RuntimeClass, *schedulingv1.PriorityClass, *snapshotv1.VolumeSnapshotClass, *gatewayv1.GatewayClass:
		if own, ok := translate.IdentityOf(obj); ok {
			return own.Space
		}
		return hostcache.EverySpace
	case *corev1.Node:
		return hostcache.EverySpace
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
			return "" // foreign, or it only says that it is the space's
		}
		return space
	}
}

// spaceIn is the space whose host namespace this is, "" if it is none's.
func spaceIn(namespace string) string {
	space, found := strings.CutPrefix(namespace, translate.HostNamespacePrefix)
	if !found {
		return ""
	}
	return space
}

// newTrimmedRouter makes a router that keeps what readers need of its objects.
func newTrimmedRouter(spaceOf func(client.Object) string, changed func(space string), more cache.Indexers) *hostcache.Router {
	r := hostcache.New(spaceOf, changed, more)
	r.Trim = trim
	return r
}

// trim drops what no reader needs, to save memory: field managers, the data of
// config maps and secrets, and the bodies of events, volumes and exposures that
// are no space's.
func trim(o client.Object) client.Object {
	o.SetManagedFields(nil)
	hostcache.DigestData(o)
	if q, ok := o.(*corev1.ResourceQuota); ok {
		o = leftOf(q)
	}
	if spaceOf(o) == "" {
		switch it := o.(type) {
		case *corev1.Event:
			o = &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: it.Namespace, Name: it.Name, UID: it.UID, ResourceVersion: it.ResourceVersion}}
		case *corev1.PersistentVolume:
			o = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: it.Name, UID: it.UID, ResourceVersion: it.ResourceVersion}}
		case *networkingv1.Ingress, *gatewayv1.Gateway, *gatewayv1.HTTPRoute:
			o = claimsOnly(it)
		}
	}
	hostcache.Pack(o)
	return o
}

// newClient makes a client without discovery: the kinds that are synced are
// known, and a space should not wait for what it does not ask.
func newClient(config *rest.Config, mapper meta.RESTMapper) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", "" // what is fastest, kind by kind
	return client.New(config, client.Options{Scheme: known(), Mapper: mapper})
}

func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Pod", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim", "Event", "ServiceAccount"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	for _, kind := range []string{"PersistentVolume", "Namespace", "Node"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	m.Add(networkingv1.SchemeGroupVersion.WithKind("Ingress"), meta.RESTScopeNamespace)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), meta.RESTScopeNamespace)
	m.Add(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), meta.RESTScopeNamespace)
	m.Add(storagev1.SchemeGroupVersion.WithKind("StorageClass"), meta.RESTScopeRoot)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("IngressClass"), meta.RESTScopeRoot)
	m.Add(nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), meta.RESTScopeRoot)
	m.Add(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), meta.RESTScopeRoot)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), meta.RESTScopeRoot)
	m.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	m.Add(snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"), meta.RESTScopeNamespace)
	m.Add(snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotClass"), meta.RESTScopeRoot)
	at := gatewayv1.SchemeGroupVersion // its plural is not what upstream's rule makes of it
	m.AddSpecific(at.WithKind("Gateway"), at.WithResource("gateways"), at.WithResource("gateway"), meta.RESTScopeNamespace)
	m.Add(gatewayv1.SchemeGroupVersion.WithKind("HTTPRoute"), meta.RESTScopeNamespace)
	m.Add(gatewayv1.SchemeGroupVersion.WithKind("GatewayClass"), meta.RESTScopeRoot)
	return m
}
