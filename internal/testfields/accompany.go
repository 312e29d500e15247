// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const own = "mine--default--own"

// accompany sets what a thing needs beside the field that is looked at, so that
// neither an API server nor a policy refuses it for what is missing.
func accompany(thing any) {
	switch x := thing.(type) {
	case *corev1.Volume:
		x.Name = "v"
	case *corev1.PersistentVolumeClaimVolumeSource:
		x.ClaimName = own
	case *corev1.ConfigMapVolumeSource:
		x.Name = own
	case *corev1.SecretVolumeSource:
		x.SecretName = own
	case *corev1.SecretProjection:
		x.Name = own
	case *corev1.ConfigMapProjection:
		x.Name = own
	case *corev1.ImageVolumeSource:
		x.Reference = "i"
	case *corev1.KeyToPath:
		x.Key, x.Path = "k", "p"
	case *corev1.DownwardAPIVolumeFile:
		x.Path, x.FieldRef = "p", &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}
	case *corev1.ConfigMapEnvSource:
		x.Name = own
	case *corev1.SecretEnvSource:
		x.Name = own
	case *corev1.ConfigMapKeySelector:
		x.Name, x.Key = own, "k"
	case *corev1.SecretKeySelector:
		x.Name, x.Key = own, "k"
	case *corev1.EnvVar:
		x.Name = "E"
	case *corev1.ObjectFieldSelector:
		x.FieldPath = "metadata.name"
	case *corev1.ResourceFieldSelector:
		x.Resource = "limits.cpu"
	case *corev1.Container:
		x.Name, x.Image = "c2", "i"
	case *corev1.EphemeralContainer:
		x.Name, x.Image = "e", "i"
	case *corev1.ContainerPort:
		x.ContainerPort = 80
	case *corev1.VolumeMount:
		x.Name, x.MountPath = "v", "/v"
	case *corev1.HTTPGetAction:
		x.Port = intstr.FromInt32(80)
	case *corev1.TCPSocketAction:
		x.Port = intstr.FromInt32(80)
	case *corev1.GRPCAction:
		x.Port = 80
	case *corev1.HTTPHeader:
		x.Name = "h"
	case *corev1.Toleration:
		x.Key, x.Operator = corev1.TaintNodeNotReady, corev1.TolerationOpExists
	case *corev1.PodAffinityTerm:
		x.TopologyKey, x.LabelSelector = corev1.LabelHostname, &metav1.LabelSelector{}
	case *corev1.WeightedPodAffinityTerm:
		x.Weight = 1
		accompany(&x.PodAffinityTerm)
	case *corev1.TopologySpreadConstraint:
		*x = corev1.TopologySpreadConstraint{TopologyKey: corev1.LabelHostname, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{}}
	case *corev1.HostAlias:
		x.IP = "192.0.2.1"
	case *corev1.PodReadinessGate:
		x.ConditionType = "gate.berth.dev/x"
	case *corev1.Sysctl:
		x.Name, x.Value = "kernel.shm_rmid_forced", "1"
	case *corev1.SeccompProfile:
		x.Type = corev1.SeccompProfileTypeRuntimeDefault
	case *corev1.AppArmorProfile:
		x.Type = corev1.AppArmorProfileTypeRuntimeDefault
	case *corev1.PodDNSConfigOption:
		x.Name = "edns0"
	case *metav1.LabelSelectorRequirement:
		x.Key, x.Operator = "another", metav1.LabelSelectorOpExists
	case *corev1.TypedObjectReference:
		x.Kind, x.Name = "PersistentVolumeClaim", own
	case *corev1.TypedLocalObjectReference:
		x.Kind, x.Name = "PersistentVolumeClaim", own
	case *networkingv1.NetworkPolicyIngressRule:
		x.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	case *networkingv1.NetworkPolicyEgressRule:
		x.To = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	case *networkingv1.IPBlock:
		x.CIDR = "192.0.2.0/24"
	case *networkingv1.IngressRule:
		x.Host = "a.example.com"
	case *networkingv1.HTTPIngressPath:
		x.PathType = ptr.To(networkingv1.PathTypePrefix)
		x.Path = "/"
	case *networkingv1.IngressServiceBackend:
		x.Name, x.Port.Number = own, 80
	case *networkingv1.IngressTLS:
		x.Hosts = []string{"a.example.com"}
	case *gatewayv1.RouteGroupKind:
		x.Kind = "HTTPRoute"
	case *gatewayv1.SecretObjectReference:
		x.Name = own
	case *gatewayv1.ParentReference:
		x.Name = own
	case *gatewayv1.HTTPBackendRef:
		x.Name = own
	case *gatewayv1.HTTPRequestMirrorFilter:
		x.BackendRef.Name = own
	case *gatewayv1.HTTPRouteFilter:
		x.Type = gatewayv1.HTTPRouteFilterRequestHeaderModifier
	}
}

// mend takes away what was put beside a field that excludes it.
func mend(object any) {
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return
	}
	peers := func(all []networkingv1.NetworkPolicyPeer) {
		for i := range all {
			if all[i].IPBlock != nil {
				all[i].PodSelector = nil
			}
		}
	}
	for _, r := range policy.Spec.Ingress {
		peers(r.From)
	}
	for _, r := range policy.Spec.Egress {
		peers(r.To)
	}
}
