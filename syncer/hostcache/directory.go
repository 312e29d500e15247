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

// Indexes of the host's watches by which a pod is found that calls, and what it
// may ask about.
const (
	indexAddress   = "berth.dev/address"   // of pods, services and endpoints
	IndexNamespace = "berth.dev/namespace" // of the space: SPACE/NAMESPACE
	IndexService   = "berth.dev/service"   // endpoint slices by their host service
)

// indexBy indexes the objects that are a space's.
func indexBy[T client.Object](values func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		o, ok := obj.(T)
		if !ok || spaceOf(o) == "" {
			return nil, nil
		}
		return values(o), nil
	}
}

// podAddresses are those that a pod calls from, and no other: not a node's, and
// not one that the pod had and somebody else may have by now. A pod that is
// being deleted may still run; its address is given away when it has ended.
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

// sliceAddresses reads no further than what a tenant may write, whoever wrote
// the slice: it runs under the index's lock, which all spaces wait for.
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

// addressSet holds addresses in the one form that they are looked up by.
type addressSet map[string]struct{}

func (s addressSet) add(ip string) {
	if addr, err := netip.ParseAddr(ip); err == nil {
		s[addr.Unmap().String()] = struct{}{}
	}
}

func (s addressSet) all() []string { return slices.Collect(maps.Keys(s)) }

// SliceService names the service that an endpoint slice is of, as namespace/name, in a list for indexes.
func SliceService(slice *discoveryv1.EndpointSlice) []string {
	if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" {
		return []string{slice.Namespace + "/" + service}
	}
	return nil
}

// VirtualNamespace names the namespace of a host object's virtual object, as space/namespace, in a list for indexes.
func VirtualNamespace[T client.Object](o T) []string {
	id, ok := translate.IdentityOf(o)
	if service, is := any(o).(*corev1.Service); !ok || is && !taken(service) {
		return nil
	}
	return []string{id.Space + "/" + id.Namespace}
}

// taken reports whether a service is one that the space has, and not only
// reserved for one that it may get. Its own API it always has.
func taken(service *corev1.Service) bool {
	id, ok := translate.IdentityOf(service)
	return ok && (id.UID != "" || isAPI(id))
}

func isAPI(id translate.Identity) bool {
	return id.Namespace == metav1.NamespaceDefault && id.Name == "kubernetes"
}

// SpaceAt is the space whose pod has an address; ok is false if none has. If
// pods of several spaces seem to have it, for one of them is gone without the
// host's knowing, nobody has.
func (h *Host) SpaceAt(addr netip.Addr) (space string, ok bool) {
	for _, pod := range Find[*corev1.Pod](h, resources.Pods, indexAddress, addr.Unmap().String()) {
		is := spaceOf(pod)
		if ok && is != space {
			return "", false
		}
		space, ok = is, true
	}
	return space, ok
}

// PodAt is the host pod of the space that has an address, nil if none has.
func (h *Host) PodAt(space string, addr netip.Addr) (at *corev1.Pod) {
	for _, pod := range Find[*corev1.Pod](h, resources.Pods, indexAddress, addr.Unmap().String()) {
		if spaceOf(pod) == space && (at == nil || at.DeletionTimestamp != nil) {
			at = pod
		}
	}
	return at
}

// Service is the host object of a space's service, nil if it has none.
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

// ServiceAt is the host object of the space's service that has a cluster IP, nil
// if none has.
func (h *Host) ServiceAt(space string, addr netip.Addr) *corev1.Service {
	for _, service := range Find[*corev1.Service](h, resources.Services, indexAddress, addr.Unmap().String()) {
		if spaceOf(service) == space {
			return service
		}
	}
	return nil
}

// Slices are the endpoints of a host service.
func (h *Host) Slices(service *corev1.Service) []*discoveryv1.EndpointSlice {
	return Find[*discoveryv1.EndpointSlice](h, resources.EndpointSlices, IndexService, service.Namespace+"/"+service.Name)
}

// SlicesAt are the endpoint slices of the space that list an address.
func (h *Host) SlicesAt(space string, addr netip.Addr) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(Find[*discoveryv1.EndpointSlice](h, resources.EndpointSlices, indexAddress, addr.Unmap().String()),
		func(slice *discoveryv1.EndpointSlice) bool { return spaceOf(slice) != space })
}

// ServiceOf is the host service that an endpoint slice belongs to, nil if there
// is none.
func (h *Host) ServiceOf(slice *discoveryv1.EndpointSlice) *corev1.Service {
	service, ok := Get[*corev1.Service](h, resources.Services, slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
	if !ok || spaceOf(service) != spaceOf(slice) || !taken(service) {
		return nil
	}
	return service
}

// HasNamespace reports whether a pod or a service of the space is known to be in
// a namespace of its.
func (h *Host) HasNamespace(space, namespace string) bool {
	key := space + "/" + namespace
	return len(Find[*corev1.Service](h, resources.Services, IndexNamespace, key))+len(Find[*corev1.Pod](h, resources.Pods, IndexNamespace, key)) > 0
}

// Find reads from the shared watches by an index.
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

// IndexBudget finds a space's pods on the host, those that are not finished, by the
// budget that they are under, as namespace/name of its host object.
const IndexBudget = "berth.dev/budget"

func podBudget(pod *corev1.Pod) []string {
	name := pod.Labels[translate.LabelBudget]
	if name == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return []string{pod.Namespace + "/" + name}
}

// Pod is the host pod of a space's pod v, as last seen; ok is false while there
// is none. It is v's by its recorded identity, UID included, not by its name
// alone: another pod of that name, of an earlier life of v's or nobody's, is not
// returned. It must not be changed.
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
