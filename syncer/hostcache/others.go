// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// otherObject stands for a host object of a space that another process has. Its type differs from that of the object,
// so that no reader of whole objects finds it.
type otherObject struct {
	metav1.ObjectMeta // only what identifies the version of the object

	Space string
	// Addresses and Nodes are those of a pod, and of the node that it runs on.
	Addresses, Nodes []string
	// Claims is what remains of an exposure; nil for other objects.
	Claims client.Object
}

// GetObjectKind implements [runtime.Object].
func (o *otherObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (o *otherObject) DeepCopyObject() runtime.Object {
	out := *o
	out.ObjectMeta = *o.DeepCopy()
	out.Addresses, out.Nodes = slices.Clone(o.Addresses), slices.Clone(o.Nodes)
	if o.Claims != nil {
		out.Claims, _ = o.Claims.DeepCopyObject().(client.Object)
	}
	return &out
}

// reduced returns what stands for an object of another process's space.
func reduced(o client.Object, space string) *otherObject {
	out := &otherObject{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()},
		Space:      space,
	}
	if pod, is := o.(*corev1.Pod); is && spaceOf(pod) == space {
		out.Addresses, out.Nodes = podAddresses(pod), nodeAddressesOfPod(pod)
	}
	if r, ok := resources.ToHostOf(o); ok && r.Exposure != nil {
		out.Claims = claimsOnly(r.Exposure, o)
		Pack(out.Claims)
	}
	Pack(out)
	return out
}

// kept returns what the cache keeps: the claims of an exposure, the addresses of a pod, and nothing of other objects.
func (o *otherObject) kept() client.Object {
	switch {
	case o.Claims != nil:
		return o.Claims
	case len(o.Addresses)+len(o.Nodes) > 0:
		return o
	default:
		return nil
	}
}

// ownerOf returns the space that a host object belongs to, whatever its labels are; "" if it belongs to none, or to all.
func ownerOf(o client.Object) string {
	if other, is := o.(*otherObject); is {
		return other.Space
	}
	if o.GetNamespace() != "" {
		return spaceIn(o.GetNamespace())
	}
	if space := spaceOf(o); space != EverySpace {
		return space
	}
	return ""
}

// other returns what stands for an object of another process's space; nil for all other objects.
func (r *Router) other(o client.Object) *otherObject {
	if r.own == nil {
		return nil
	}
	space := ownerOf(o)
	if space == "" || r.own(space) {
		return nil
	}
	if already, is := o.(*otherObject); is {
		return already
	}
	return reduced(o, space)
}

// isReducedOwn reports whether an object was reduced before its space became one of this process's.
func (r *Router) isReducedOwn(o client.Object) bool {
	other, is := o.(*otherObject)
	return is && r.own != nil && r.own(other.Space)
}

// putOther keeps what is needed of an object of another process's space. The caller holds writes.
func (r *Router) putOther(other *otherObject) error {
	was, err := r.swapOther(other, false)
	if was != nil && r.SpaceOf(was) != "" && r.SpaceOf(was) != other.Space {
		r.Deliver(was, true) // it no longer belongs to a space of this process
	}
	return err
}

// swapOther stores what the cache keeps of an object, and returns what was stored; nil if there was nothing. The same
// version is replaced only if it is forced.
func (c *Cache) swapOther(other *otherObject, forced bool) (was client.Object, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, exists, err := c.objects.Get(other)
	if err != nil {
		return nil, err
	}
	if exists {
		was, _ = item.(client.Object)
	}
	is := other.kept()
	switch {
	case is == nil && exists:
		return was, c.objects.Delete(other)
	case is == nil, Same(was, is) && !forced:
		return was, nil
	default:
		return was, c.objects.Update(is)
	}
}

// reduce reduces what is stored of a space, unless this process has it again.
func (r *Router) reduce(space string) error {
	r.writes.Lock()
	defer r.writes.Unlock()
	if r.own == nil || r.own(space) {
		return nil
	}
	var errs []error
	for index, value := range map[string]string{indexSpace: space, cache.NamespaceIndex: translate.HostNamespacePrefix + space} {
		for _, item := range r.By(index, value) {
			o, ok := item.(client.Object)
			if _, already := item.(*otherObject); !ok || already || ownerOf(o) != space {
				continue
			}
			_, err := r.swapOther(reduced(o, space), true)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// podsBy is an index function of pods. others returns the values of those of other processes' spaces.
func podsBy(values func(*corev1.Pod) []string, others func(*otherObject) []string) cache.IndexFunc {
	whole := indexBy(values)
	return func(obj any) ([]string, error) {
		if other, is := obj.(*otherObject); is {
			return others(other), nil
		}
		return whole(obj)
	}
}

// CachedObjects returns how many objects the cache contains of this process's own spaces, and of other spaces. Objects
// that concern no space, or every space, don't count.
func (h *Host) CachedObjects() (own, other int) {
	for _, r := range h.allRouters() {
		for _, item := range r.All() {
			o, ok := item.(client.Object)
			switch space := ownerOf(o); {
			case !ok, space == "":
			case r.own == nil || r.own(space):
				own++
			default:
				other++
			}
		}
	}
	return own, other
}
