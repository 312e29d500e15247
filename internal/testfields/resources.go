// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	"reflect"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Resource is one that Berth syncs to a host.
type Resource struct {
	schema.GroupVersionResource
	Kind string
	// Made is an object as Berth makes it, of the space mine.
	Made func() client.Object
	// Sites are the fields that Berth never writes.
	Sites []Site
	// InCluster says that the objects are in no namespace.
	InCluster bool
}

// Resources are all those that Berth syncs to a host.
func Resources() []Resource {
	writes := Writes()
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "berth-mine", Name: "mine--default--more",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "mine", "berth.dev/namespace": "default"},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "more", "berth.dev/uid": "u"},
		}
	}
	class := func() metav1.ObjectMeta {
		m := meta()
		m.Namespace, m.Name = "", "mine.more"
		return m
	}
	var all []Resource
	add := func(group, version, plural, kind string, made func() client.Object) {
		all = append(all, Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, Kind: kind, Made: made,
			Sites: Sites(reflect.TypeOf(made()).Elem(), writes, plural), InCluster: made().GetNamespace() == "",
		})
	}
	add("", "v1", "configmaps", "ConfigMap", func() client.Object { return &corev1.ConfigMap{ObjectMeta: meta()} })
	add("", "v1", "secrets", "Secret", func() client.Object {
		return &corev1.Secret{ObjectMeta: meta(), Type: corev1.SecretTypeOpaque}
	})
	add("", "v1", "serviceaccounts", "ServiceAccount", func() client.Object {
		return &corev1.ServiceAccount{ObjectMeta: meta(), AutomountServiceAccountToken: ptr.To(false)}
	})
	add("", "v1", "services", "Service", func() client.Object {
		return &corev1.Service{ObjectMeta: meta(), Spec: corev1.ServiceSpec{
			Selector: map[string]string{"berth.dev/space": "mine", "berth.dev/namespace": "default"}, Ports: []corev1.ServicePort{{Port: 80}},
		}}
	})
	add("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", func() client.Object {
		m := meta()
		m.Labels[discoveryv1.LabelServiceName], m.Labels[discoveryv1.LabelManagedBy] = own, "syncer.berth.dev"
		return &discoveryv1.EndpointSlice{ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}}}
	})
	add("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", func() client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta(), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("standard"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	})
	add("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", func() client.Object {
		return &snapshotv1.VolumeSnapshot{ObjectMeta: meta(), Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(own)}}}
	})
	add("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", func() client.Object {
		return &resourcev1.ResourceClaim{ObjectMeta: meta(), Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "offered.example", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		}}}}}
	})
	add("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", func() client.Object {
		return &networkingv1.NetworkPolicy{ObjectMeta: meta(), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}
	})
	add("networking.k8s.io", "v1", "ingresses", "Ingress", func() client.Object {
		return &networkingv1.Ingress{ObjectMeta: meta(), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.example.com"}}}}
	})
	add("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", func() client.Object {
		return &policyv1.PodDisruptionBudget{ObjectMeta: meta(), Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"berth.dev/space": "mine", "berth.dev/budget": "mine--default--more"}},
		}}
	})
	add(gatewayv1.GroupName, "v1", "gateways", "Gateway", func() client.Object {
		return &gatewayv1.Gateway{ObjectMeta: meta(), Spec: gatewayv1.GatewaySpec{GatewayClassName: "c", Listeners: []gatewayv1.Listener{{
			Name: "l", Hostname: ptr.To(gatewayv1.Hostname("a.example.com")), Port: 80, Protocol: gatewayv1.HTTPProtocolType,
		}}}}
	})
	add(gatewayv1.GroupName, "v1", "httproutes", "HTTPRoute", func() client.Object { return &gatewayv1.HTTPRoute{ObjectMeta: meta()} })
	add("", "v1", "pods", "Pod", func() client.Object {
		return &corev1.Pod{ObjectMeta: meta(), Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		}}
	})
	add("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", func() client.Object {
		return &schedulingv1.PriorityClass{ObjectMeta: class(), Value: 100, PreemptionPolicy: ptr.To(corev1.PreemptNever)}
	})
	add("storage.k8s.io", "v1", "storageclasses", "StorageClass", func() client.Object {
		return &storagev1.StorageClass{ObjectMeta: class(), Provisioner: "offered.example", ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)}
	})
	add("", "v1", "persistentvolumes", "PersistentVolume", func() client.Object {
		return &corev1.PersistentVolume{ObjectMeta: class(), Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "offered.example", VolumeHandle: "mine/more"}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "berth-mine", Name: own},
		}}
	})
	return all
}

// Ephemeral are the fields of the ephemeral containers of a pod, which go to the host
// by a request of their own.
func Ephemeral() []Site {
	return SitesAt(reflect.TypeFor[corev1.Pod](), Writes(), "pods", "Spec", "EphemeralContainers")
}
