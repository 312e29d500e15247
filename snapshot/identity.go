// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/translate"
)

// Reserve creates the host objects of services of a new space, which have no cluster IPs and no node ports yet. It
// returns the host objects in the same order; nil for a service that needs none.
type Reserve func(ctx context.Context, services []*corev1.Service) ([]*corev1.Service, error)

// Changes counts what was changed to make a copy of a space a new space.
type Changes struct {
	Services int `json:"services"` // with new addresses from the host
	Claims   int `json:"claims"`   // which get new, empty volumes
	Pods     int `json:"pods"`     // which start again
	Tokens   int `json:"tokens"`   // in Secrets, which are issued again
}

// These objects in a store belong to the original space, and the new one creates its own: what upstream publishes about
// the space's CA and its API, and which addresses are allocated.
var dropped = []string{
	"configmaps/kube-system/extension-apiserver-authentication",
	"services/endpoints/default/kubernetes",
	"endpointslices/default/kubernetes",
	"ipaddresses/",
	"servicecidrs/",
	"ranges/",
	"leases/kube-system/",
}

// Reidentify turns the store at path, which nobody may have opened, into that of another space. The two spaces share no
// keys and no cluster IPs, and tokens and certificates of one are not valid in the other:
//
// - the namespace kube-system, whose UID identifies a cluster, gets a new UID;
// - tokens in Secrets are removed, and the space's controller issues new ones;
// - services get addresses that the host allocates, by reserve;
// - claims lose their volumes, which stay with the original space, because a snapshot does not contain volumes;
// - pods that ran become pending.
func Reidentify(ctx context.Context, path, space string, reserve Reserve) (changes Changes, err error) {
	opened, err := kine.Open(ctx, kine.Options{Path: path, Name: space})
	if err != nil {
		return Changes{}, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	s := newObjects(opened)
	for _, prefix := range dropped {
		if err := s.each(ctx, prefix, func(*stored) (verdict, error) { return drop, nil }); err != nil {
			return changes, err
		}
	}
	r := reidentifier{&changes}
	for prefix, change := range map[string]func(context.Context, runtime.Object) (verdict, error){
		"namespaces/kube-system":  r.namespace,
		"secrets/":                r.secret,
		"persistentvolumes/":      r.volume,
		"persistentvolumeclaims/": r.claim,
		"pods/":                   r.pod,
	} {
		err := s.each(ctx, prefix, func(o *stored) (verdict, error) { return s.change(ctx, o, change) })
		if err != nil {
			return changes, err
		}
	}
	err = r.services(ctx, s, reserve) // last, because it changes the host
	return changes, err
}

type reidentifier struct {
	changes *Changes
}

func (reidentifier) namespace(_ context.Context, o runtime.Object) (verdict, error) {
	ns, ok := o.(*corev1.Namespace)
	if !ok || ns.Name != metav1.NamespaceSystem {
		return keep, nil
	}
	ns.UID = uuid.NewUUID()
	return write, nil
}

func (r reidentifier) secret(_ context.Context, o runtime.Object) (verdict, error) {
	secret, ok := o.(*corev1.Secret)
	if !ok || secret.Type != corev1.SecretTypeServiceAccountToken || len(secret.Data) == 0 {
		return keep, nil
	}
	delete(secret.Data, corev1.ServiceAccountTokenKey)
	delete(secret.Data, corev1.ServiceAccountRootCAKey)
	r.changes.Tokens++
	return write, nil
}

// services reserves the addresses of all services at once, so that either all or none get theirs, and then writes the
// services.
func (r reidentifier) services(ctx context.Context, s *objects, reserve Reserve) error {
	each := func(f func(context.Context, runtime.Object) (verdict, error)) error {
		return s.each(ctx, "services/specs/", func(o *stored) (verdict, error) { return s.change(ctx, o, f) })
	}
	var asked []*corev1.Service
	err := each(func(_ context.Context, o runtime.Object) (verdict, error) {
		v, ok := o.(*corev1.Service)
		switch {
		case !ok:
			return keep, nil
		case v.DeletionTimestamp != nil, isAPI(v) && (v.Spec.Type != corev1.ServiceTypeClusterIP || v.Spec.ClusterIP == corev1.ClusterIPNone):
			return drop, nil
		case v.Spec.Type == corev1.ServiceTypeExternalName:
			return keep, nil
		}
		asked = append(asked, unaddressed(v))
		return keep, nil
	})
	if err != nil || len(asked) == 0 {
		return err
	}
	hosts, err := reserve(ctx, asked)
	if err != nil {
		return err
	}
	given := map[types.NamespacedName]*corev1.Service{}
	for i, v := range asked {
		given[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}] = hosts[i]
	}
	return each(func(_ context.Context, o runtime.Object) (verdict, error) {
		v, ok := o.(*corev1.Service)
		if !ok {
			return keep, nil
		}
		host := given[types.NamespacedName{Namespace: v.Namespace, Name: v.Name}]
		switch {
		case host != nil:
		case isAPI(v):
			return drop, nil // its address belongs to the original space
		default:
			return keep, nil
		}
		readdress(v, host)
		if host.Spec.ClusterIP != corev1.ClusterIPNone {
			r.changes.Services++
		}
		return write, nil
	})
}

// isAPI reports whether a service is that of the space's API, which upstream creates if it is missing. Changes of a
// tenant to it are dropped.
func isAPI(v *corev1.Service) bool {
	return v.Namespace == metav1.NamespaceDefault && v.Name == "kubernetes"
}

// unaddressed returns a service without allocated addresses, like a new one.
func unaddressed(v *corev1.Service) *corev1.Service {
	asked := v.DeepCopy()
	asked.UID = ""
	if asked.Spec.ClusterIP != corev1.ClusterIPNone {
		asked.Spec.ClusterIP, asked.Spec.ClusterIPs = "", nil
	}
	asked.Spec.HealthCheckNodePort = 0
	for i := range asked.Spec.Ports {
		asked.Spec.Ports[i].NodePort = 0
	}
	return asked
}

// readdress copies addresses and ports of the host object to a service.
func readdress(v, host *corev1.Service) {
	v.Spec.ClusterIP, v.Spec.ClusterIPs = host.Spec.ClusterIP, host.Spec.ClusterIPs
	v.Spec.IPFamilies, v.Spec.IPFamilyPolicy = host.Spec.IPFamilies, host.Spec.IPFamilyPolicy
	v.Spec.HealthCheckNodePort = host.Spec.HealthCheckNodePort
	for i := range v.Spec.Ports {
		port := &v.Spec.Ports[i]
		port.NodePort = 0
		for _, p := range host.Spec.Ports {
			if p.Port == port.Port && p.Protocol == port.Protocol {
				port.NodePort = p.NodePort
			}
		}
	}
	v.Status.LoadBalancer = corev1.LoadBalancerStatus{}
}

func (reidentifier) volume(_ context.Context, o runtime.Object) (verdict, error) {
	if v, ok := o.(*corev1.PersistentVolume); ok && v.Labels[translate.LabelManagedBy] == translate.ManagedBy {
		return drop, nil
	}
	return keep, nil
}

func (r reidentifier) claim(_ context.Context, o runtime.Object) (verdict, error) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName == "" && claim.Status.Phase == corev1.ClaimPending {
		return keep, nil
	}
	if claim.DeletionTimestamp != nil {
		return drop, nil
	}
	claim.Spec.VolumeName = ""
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	for key := range claim.Annotations {
		if strings.HasPrefix(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "volume.kubernetes.io/") || strings.HasPrefix(key, "volume.beta.kubernetes.io/") {
			delete(claim.Annotations, key)
		}
	}
	r.changes.Claims++
	return write, nil
}

func (r reidentifier) pod(_ context.Context, o runtime.Object) (verdict, error) {
	pod, ok := o.(*corev1.Pod)
	switch {
	case !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return keep, nil
	case pod.DeletionTimestamp != nil:
		return drop, nil
	case pod.Spec.NodeName == "":
		return keep, nil
	}
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: pod.Status.QOSClass}
	r.changes.Pods++
	return write, nil
}
