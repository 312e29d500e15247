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

// Reserve gives the services of a space that is being made, which have no cluster
// IPs and no node ports, their objects on the host, and returns those in the same
// order; nil for one that needs nothing of the host.
type Reserve func(ctx context.Context, services []*corev1.Service) ([]*corev1.Service, error)

// Changes counts what was changed to make a space another one.
type Changes struct {
	Services int `json:"services"` // that have addresses which the host gave it
	Claims   int `json:"claims"`   // that will get new, empty volumes
	Pods     int `json:"pods"`     // that will start anew
	Tokens   int `json:"tokens"`   // in Secrets, that will be issued anew
}

// What of a store belongs to the space that it was taken of, and is made anew by
// the one that it becomes: what upstream publishes of the space's CA and
// itself, and which addresses it has given out.
var dropped = []string{
	"configmaps/kube-system/extension-apiserver-authentication",
	"services/endpoints/default/kubernetes",
	"endpointslices/default/kubernetes",
	"ipaddresses/",
	"servicecidrs/",
	"ranges/",
	"leases/kube-system/",
}

// Reidentify makes the store at path, which nobody has open, that of another
// space. The two share no key and no cluster IP, and neither's tokens nor
// certificates work in the other:
//
//   - the namespace kube-system, by whose UID a cluster is known, gets another;
//   - tokens in Secrets are taken out, for the space's controller to issue anew;
//   - services get addresses of the host's choice, from reserve;
//   - claims lose their volumes, which stay the other space's: nothing that is
//     in a volume is in a snapshot;
//   - pods that ran are pending again.
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
	err = r.services(ctx, s, reserve) // last, as it is felt on the host
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

// services has addresses reserved for all services at once, so that they are
// given all of them or none, and then writes them.
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
			return drop, nil // its address is the other space's
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

// isAPI reports whether a service is that of the space's API, which upstream makes
// if it is not there. What a tenant made of it is dropped.
func isAPI(v *corev1.Service) bool {
	return v.Namespace == metav1.NamespaceDefault && v.Name == "kubernetes"
}

// unaddressed is a service as one that is new.
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

// readdress gives a service the addresses and ports of its host object.
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
