// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// crashDiff is what is wrong with a space and its host namespace.
type crashDiff struct{ lost, leaked, duplicated, different, unsettled []string }

func (d *crashDiff) ok() bool {
	return len(d.lost)+len(d.leaked)+len(d.duplicated)+len(d.different)+len(d.unsettled) == 0
}

func (d *crashDiff) String() string {
	return fmt.Sprintf("lost %q, leaked %q, duplicated %q, different %q, not settled %q", d.lost, d.leaked, d.duplicated, d.different, d.unsettled)
}

// compare looks at all objects of all rows on both sides, and at what the tenant and the admin made.
func (w *crashWalk) compare(ctx context.Context) (*crashDiff, error) {
	d, inSpace := &crashDiff{}, map[string][]client.Object{}
	onHost := map[string][]client.Object{}
	for i := range w.rows {
		row := &w.rows[i]
		scope := []client.ListOption{client.InNamespace(w.space.HostNamespace())}
		switch {
		case row.from:
			scope = []client.ListOption{client.MatchingLabels{crashLane: w.space.Name}}
		case row.cluster:
			scope = []client.ListOption{client.MatchingLabels{translate.LabelSpace: w.space.Name}}
		}
		var err error
		if inSpace[row.name], err = listed(ctx, w.inSpace, row); err != nil {
			return nil, err
		}
		if onHost[row.name], err = listed(ctx, w.onHost, row, scope...); err != nil {
			return nil, err
		}
	}
	for i := range w.rows {
		row := &w.rows[i]
		if row.from {
			w.compareClasses(d, row, inSpace[row.name], onHost[row.name])
		} else {
			w.compareObjects(d, row, inSpace, onHost[row.name])
		}
	}
	w.compareMade(d, inSpace, onHost)
	w.compareReturned(d, inSpace, onHost)
	return d, w.compareDerived(ctx, d, inSpace, onHost)
}

func listed(ctx context.Context, c client.Client, row *crashRow, opts ...client.ListOption) ([]client.Object, error) {
	list := row.list()
	if err := c.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %s: %w", row.name, err)
	}
	var out []client.Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, o.(client.Object))
		return nil
	})
	return out, err
}

// compareObjects compares what is synced to the host, by the virtual objects' UIDs.
func (w *crashWalk) compareObjects(d *crashDiff, row *crashRow, inSpace map[string][]client.Object, onHost []client.Object) {
	hosted := map[types.UID]client.Object{}
	for _, h := range onHost {
		id, ours := translate.IdentityOf(h)
		if !ours {
			continue
		}
		if _, twice := hosted[id.UID]; twice {
			d.duplicated = append(d.duplicated, where(row, h))
		}
		hosted[id.UID] = h
	}
	for _, v := range inSpace[row.name] {
		if !w.expected(row, v, inSpace) {
			continue
		}
		volume, is := v.(*corev1.PersistentVolume) // which stays as long as its claim
		if v.GetDeletionTimestamp() != nil && (!is || volume.Status.Phase != corev1.VolumeBound) || !running(v) {
			d.unsettled = append(d.unsettled, where(row, v))
		}
		h, exists := hosted[v.GetUID()]
		delete(hosted, v.GetUID())
		switch {
		case !exists:
			d.lost = append(d.lost, where(row, v))
		case row.fact(v) != row.fact(h):
			d.different = append(d.different, fmt.Sprintf("%s: %q, on the host %q", where(row, v), row.fact(v), row.fact(h)))
		}
	}
	for _, h := range hosted {
		d.leaked = append(d.leaked, where(row, h))
	}
}

// compareClasses compares what the space gets of the host, by name.
func (w *crashWalk) compareClasses(d *crashDiff, row *crashRow, inSpace, onHost []client.Object) {
	shown := map[string]client.Object{}
	for _, v := range inSpace {
		if v.GetLabels()[translate.LabelManagedBy] == translate.ManagedBy {
			shown[v.GetName()] = v
		}
	}
	for _, h := range onHost {
		v, exists := shown[h.GetName()]
		delete(shown, h.GetName())
		switch {
		case !exists:
			d.lost = append(d.lost, where(row, h))
		case row.fact(v) != row.fact(h):
			d.different = append(d.different, fmt.Sprintf("%s: %q, on the host %q", where(row, v), row.fact(v), row.fact(h)))
		case !running(v):
			d.unsettled = append(d.unsettled, where(row, v))
		}
	}
	for _, v := range shown {
		d.leaked = append(d.leaked, where(row, v))
	}
}

// compareMade looks for what the tenant and the admin made and have not deleted, as they made it.
func (w *crashWalk) compareMade(d *crashDiff, inSpace, onHost map[string][]client.Object) {
	for at, state := range w.made {
		row, among := w.row(at.row), inSpace
		if row.from {
			among = onHost
		}
		i := slices.IndexFunc(among[row.name], func(o client.Object) bool { return o.GetUID() == state.uid })
		switch {
		case i < 0:
			d.lost = append(d.lost, fmt.Sprintf("%s %s/%s, as it was made", at.row, at.namespace, at.name))
		case row.set != nil && row.fact(among[row.name][i]) != state.fact:
			d.different = append(d.different, fmt.Sprintf("%s %s/%s: %q, was made %q", at.row, at.namespace, at.name, row.fact(among[row.name][i]), state.fact))
		}
	}
}

// compareDerived looks at what follows from pods and claims: virtual nodes, volumes and tokens.
func (w *crashWalk) compareDerived(ctx context.Context, d *crashDiff, inSpace, onHost map[string][]client.Object) error {
	var nodes corev1.NodeList
	var volumes, hostVolumes corev1.PersistentVolumeList
	for list, c := range map[client.ObjectList]client.Client{&nodes: w.inSpace, &volumes: w.inSpace, &hostVolumes: w.onHost} {
		if err := c.List(ctx, list); err != nil {
			return err
		}
	}
	wantNodes, wantVolumes, claims, pods := map[string]bool{}, map[string]bool{}, map[types.UID]bool{}, map[types.UID]string{}
	for _, v := range inSpace[resources.Pods] {
		wantNodes[v.(*corev1.Pod).Spec.NodeName] = true
	}
	for _, v := range inSpace[resources.Claims] {
		if translate.NamedVolume(v.(*corev1.PersistentVolumeClaim)) != "" {
			continue
		}
		wantVolumes[translate.VolumeName(v.(*corev1.PersistentVolumeClaim))] = true
	}
	for _, h := range onHost[resources.Claims] {
		claims[h.GetUID()] = true
	}
	for _, h := range onHost[resources.Pods] {
		pods[h.GetUID()] = h.GetName()
	}
	for _, n := range nodes.Items {
		if !wantNodes[n.Name] {
			d.leaked = append(d.leaked, "node "+n.Name)
		}
		delete(wantNodes, n.Name)
	}
	for _, v := range volumes.Items {
		if !wantVolumes[v.Name] && v.Labels[translate.LabelManagedBy] == translate.ManagedBy {
			d.leaked = append(d.leaked, "volume "+v.Name)
		}
		delete(wantVolumes, v.Name)
	}
	for _, h := range hostVolumes.Items {
		if ref := h.Spec.ClaimRef; ref != nil && ref.Namespace == w.space.HostNamespace() && !claims[ref.UID] {
			d.leaked = append(d.leaked, "host volume "+h.Name)
		}
	}
	for name := range wantNodes {
		d.lost = append(d.lost, "node "+name)
	}
	for name := range wantVolumes {
		d.lost = append(d.lost, "volume "+name)
	}
	if err := w.lookAtTokens(ctx, pods); err != nil {
		d.different = append(d.different, err.Error())
	}
	return nil
}

// expected reports whether an object of the space is to be on the host.
func (w *crashWalk) expected(row *crashRow, v client.Object, inSpace map[string][]client.Object) bool {
	sibling := func(of, name string) client.Object {
		for _, o := range inSpace[of] {
			if o.GetNamespace() == v.GetNamespace() && o.GetName() == name {
				return o
			}
		}
		return nil
	}
	switch row.name {
	case resources.EndpointSlices:
		service, ok := sibling(resources.Services, v.GetLabels()[discoveryv1.LabelServiceName]).(*corev1.Service)
		return ok && translate.HasOwnEndpoints(service)
	case resources.ConfigMaps, resources.Secrets:
		return !w.used || slices.ContainsFunc(inSpace[resources.Pods], func(pod client.Object) bool {
			return pod.GetNamespace() == v.GetNamespace() && refersTo(pod.(*corev1.Pod), row.name, v.GetName())
		})
	case w.sent.Name:
		service, ok := sibling(resources.Services, backendOf(v)).(*corev1.Service)
		return !ok || !translate.LeadsOut(service)
	case resources.HTTPRoutes:
		return sibling(resources.Gateways, crashName(0)) != nil
	case resources.Claims:
		return translate.NamedVolume(v.(*corev1.PersistentVolumeClaim)) == "" || slices.ContainsFunc(inSpace[resources.ExportedVolumes], func(volume client.Object) bool {
			return has(volume, v)
		})
	case resources.ExportedVolumes:
		return slices.ContainsFunc(inSpace[resources.Claims], func(claim client.Object) bool { return has(v, claim) })
	case resources.ExportedPriorityClasses, resources.ExportedStorageClasses:
		return translate.IsTenantClass(v)
	default:
		return true
	}
}

// has reports whether a volume of the tenant's own is bound to a claim in the space.
func has(volume, claim client.Object) bool {
	v, c := volume.(*corev1.PersistentVolume), claim.(*corev1.PersistentVolumeClaim)
	return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID && translate.NamedVolume(c) == v.Name
}

func refersTo(pod *corev1.Pod, resource, name string) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil || resource != resources.ConfigMaps {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil && source.ConfigMap.Name == name {
				return true
			}
		}
	}
	return name == crashName(0)
}

// running reports whether what takes a while to come to be has come to be.
func running(v client.Object) bool {
	switch o := v.(type) {
	case *corev1.Pod:
		return o.Status.Phase == corev1.PodRunning
	case *corev1.PersistentVolumeClaim:
		return o.Status.Phase == corev1.ClaimBound
	case *unstructured.Unstructured:
		return phaseOf(o) == noteOf(o)
	default:
		return true
	}
}

func where(row *crashRow, o client.Object) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", row.name, o.GetNamespace(), o.GetName(), o.GetUID()))
}
