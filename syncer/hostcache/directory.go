// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// These are indexes of the host's watches, by which the pod of a caller is found, and what it may ask about.
const (
	indexAddress   = "berth.dev/address"   // of pods, services and endpoints
	IndexNamespace = "berth.dev/namespace" // of the space: SPACE/NAMESPACE
	IndexService   = "berth.dev/service"   // endpoint slices, by their host service
)

// indexBy returns an index function for objects that belong to a space.
func indexBy[T client.Object](values func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		o, ok := obj.(T)
		if !ok || spaceOf(o) == "" {
			return nil, nil
		}
		return values(o), nil
	}
}

// podAddresses returns the addresses from which a pod sends requests. It returns neither a node's address, nor one that
// the pod no longer has and somebody else may have. A pod that is being deleted may still run; its address is reused
// only when it has ended.
func podAddresses(pod *corev1.Pod) []string {
	if _, ok := translate.IdentityOf(pod); !ok || pod.Spec.HostNetwork || ended(pod) {
		return nil
	}
	seen := addressSet{}
	for _, ip := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		seen.add(ip.IP)
	}
	return seen.all()
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func serviceAddresses(service *corev1.Service) []string {
	if !taken(service) {
		return nil
	}
	seen := addressSet{}
	for _, ip := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
		seen.add(ip)
	}
	return seen.all()
}

// sliceAddresses reads at most as many addresses as a tenant may write, whoever wrote the slice, because it runs with
// the lock of the index, for which all spaces wait.
func sliceAddresses(slice *discoveryv1.EndpointSlice) []string {
	seen, left := addressSet{}, bounds.EndpointAddresses.Max()
	for i := range slice.Endpoints {
		for _, ip := range slice.Endpoints[i].Addresses {
			if left--; left < 0 {
				return seen.all()
			}
			seen.add(ip)
		}
	}
	return seen.all()
}

// addressSet contains addresses in the canonical form by which they are looked up.
type addressSet map[string]struct{}

func (s addressSet) add(ip string) {
	if addr, err := netip.ParseAddr(ip); err == nil {
		s[addr.Unmap().String()] = struct{}{}
	}
}

func (s addressSet) all() []string { return slices.Collect(maps.Keys(s)) }

// SliceService returns the service of an endpoint slice, as namespace/name, for indexes.
func SliceService(slice *discoveryv1.EndpointSlice) []string {
	if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" {
		return []string{slice.Namespace + "/" + service}
	}
	return nil
}

// VirtualNamespace returns the namespace of a host object's virtual object, as space/namespace, for indexes.
func VirtualNamespace[T client.Object](o T) []string {
	id, ok := translate.IdentityOf(o)
	if service, is := any(o).(*corev1.Service); !ok || is && !taken(service) {
		return nil
	}
	return []string{id.Space + "/" + id.Namespace}
}

// taken reports whether the space has the service of a host object, so that it is not only reserved. The service of the
// space's API always counts.
func taken(service *corev1.Service) bool {
	id, ok := translate.IdentityOf(service)
	return ok && (id.UID != "" || isAPI(id))
}

func isAPI(id translate.Identity) bool {
	return id.Namespace == metav1.NamespaceDefault && id.Name == "kubernetes"
}

// SpaceAt returns the space of the pod with an address; ok is false if there is none. If pods of several spaces seem to
// have it, because the host has not noticed that one is gone, ok is false, too.
func (h *Host) SpaceAt(addr netip.Addr) (space string, ok bool) {
	for _, pod := range Find[client.Object](h, resources.Pods, indexAddress, addr.Unmap().String()) {
		is := ownerOf(pod)
		if ok && is != space {
			return "", false
		}
		space, ok = is, true
	}
	return space, ok
}

// OwnSpaceAt is [Host.SpaceAt] for pods of spaces of which the cache contains everything.
func (h *Host) OwnSpaceAt(addr netip.Addr) (space string, ok bool) {
	if space, ok = h.SpaceAt(addr); !ok || !h.HasCached(space) {
		return "", false
	}
	return space, true
}

// HasDNSAt reports whether the pods of a space get their DNS at an address.
func (h *Host) HasDNSAt(space string, addr netip.Addr) bool {
	slice, ok := Get[*discoveryv1.EndpointSlice](h, resources.EndpointSlices, translate.Space{Name: space}.HostNamespace(), translate.DNSServiceName)
	return ok && slices.Contains(sliceAddresses(slice), addr.Unmap().String())
}

// PodAt returns the host pod of the space with an address; nil if there is none.
func (h *Host) PodAt(space string, addr netip.Addr) (at *corev1.Pod) {
	for _, pod := range Find[*corev1.Pod](h, resources.Pods, indexAddress, addr.Unmap().String()) {
		if spaceOf(pod) == space && (at == nil || at.DeletionTimestamp != nil) {
			at = pod
		}
	}
	return at
}

// Service returns the host object of a space's service; nil if there is none.
func (h *Host) Service(space, namespace, name string) *corev1.Service {
	of := translate.Space{Name: space}
	service, ok := Get[*corev1.Service](h, resources.Services, of.HostNamespace(), of.HostName(namespace, name, translate.LimitLabel))
	if !ok || spaceOf(service) != space || !taken(service) {
		return nil
	}
	if id, _ := translate.IdentityOf(service); id.Namespace != namespace || id.Name != name {
		return nil
	}
	return service
}

// ServiceAt returns the host object of the space's service with a cluster IP; nil if there is none.
func (h *Host) ServiceAt(space string, addr netip.Addr) *corev1.Service {
	for _, service := range Find[*corev1.Service](h, resources.Services, indexAddress, addr.Unmap().String()) {
		if spaceOf(service) == space {
			return service
		}
	}
	return nil
}

// Slices returns the endpoint slices of a host service.
func (h *Host) Slices(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return Find[*discoveryv1.EndpointSlice](h, resources.EndpointSlices, IndexService, service.Namespace+"/"+service.Name)
}

// SlicesAt returns the endpoint slices of the space that contain an address.
func (h *Host) SlicesAt(space string, addr netip.Addr) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(Find[*discoveryv1.EndpointSlice](h, resources.EndpointSlices, indexAddress, addr.Unmap().String()),
		func(slice *discoveryv1.EndpointSlice) bool { return spaceOf(slice) != space })
}

// ServiceOf returns the host service of an endpoint slice; nil if there is none.
func (h *Host) ServiceOf(slice *discoveryv1.EndpointSlice) *corev1.Service {
	service, ok := Get[*corev1.Service](h, resources.Services, slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
	if !ok || spaceOf(service) != spaceOf(slice) || !taken(service) {
		return nil
	}
	return service
}

// HasNamespace reports whether a pod or a service of the space is known to be in this namespace of it.
func (h *Host) HasNamespace(space, namespace string) bool {
	key := space + "/" + namespace
	return len(Find[*corev1.Service](h, resources.Services, IndexNamespace, key))+len(Find[*corev1.Pod](h, resources.Pods, IndexNamespace, key)) > 0
}

// Find returns objects of the shared watches by an index.
func Find[T client.Object](h *Host, resource, index, value string) (objects []T) {
	f := h.Routers[resource]
	if f == nil {
		return nil // it is disabled
	}
	for _, item := range f.By(index, value) {
		if o, ok := item.(T); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// IndexBudget is the index of spaces' unfinished pods on the host by their disruption budget, as namespace/name of its
// host object.
const IndexBudget = "berth.dev/budget"

func podBudget(pod *corev1.Pod) []string {
	name := pod.Labels[translate.LabelBudget]
	if name == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return []string{pod.Namespace + "/" + name}
}

// Pod returns the latest version of the host pod of a space's pod v; ok is false if there is none. The host pod must
// have the recorded identity of v, including the UID, so that an earlier pod of the same name is not returned. It must
// not be changed.
func (h *Host) Pod(space translate.Space, v *corev1.Pod) (host *corev1.Pod, ok bool) {
	name := space.HostName(v.Namespace, v.Name, translate.LimitSubdomain)
	host, ok = Get[*corev1.Pod](h, resources.Pods, space.HostNamespace(), name)
	if !ok {
		return nil, false
	}
	id, ours := translate.IdentityOf(host)
	want := translate.Identity{Space: space.Name, Namespace: v.Namespace, Name: v.Name, UID: v.UID}
	if !ours || v.UID == "" || id != want {
		return nil, false
	}
	return host, true
}
