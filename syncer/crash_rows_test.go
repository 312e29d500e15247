// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/syncer/resources"
)

// crashRow says how the crash walk makes, changes and recognizes the objects of one row of [resources.Table], or of one
// declaration. What is to the host, the tenant makes in the space; what is from the host, the admin makes there.
type crashRow struct {
	name string
	list func() client.ObjectList
	make func(w *crashWalk, name string) client.Object
	// set gives an object its revision; without, objects of the kind are only made, deleted and made again.
	set func(w *crashWalk, o client.Object, revision int)
	// fact is what has to be the same on both sides.
	fact    func(o client.Object) string
	cluster bool
	from    bool // the host
}

func existence(client.Object) string { return "" }

func servicePort(o client.Object) string {
	s := o.(*corev1.Service)
	return fmt.Sprint(s.Spec.ClusterIP, s.Spec.Ports[0].Port)
}

// crashRows lists all rows of the table that somebody makes objects of.
func crashRows() []crashRow {
	return append([]crashRow{
		{
			name: resources.Pods, list: func() client.ObjectList { return &corev1.PodList{} },
			make: func(_ *crashWalk, _ string) client.Object { return newCrashPod() },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.SetLabels(map[string]string{"app": "crash", "revision": fmt.Sprint(revision)})
			},
			fact: func(o client.Object) string { return o.GetLabels()["revision"] },
		},
		{
			name: resources.Services, list: func() client.ObjectList { return &corev1.ServiceList{} },
			make: func(_ *crashWalk, name string) client.Object {
				s := newService(name, "")
				if name == crashName(0) { // whose endpoints the tenant writes
					s.Spec.Selector = nil
				}
				return s
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*corev1.Service).Spec.Ports[0].Port = port(revision)
			},
			fact: servicePort,
		},
		{
			name: resources.EndpointSlices, list: func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
			make: func(_ *crashWalk, _ string) client.Object {
				return &discoveryv1.EndpointSlice{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: crashName(0)}}, AddressType: discoveryv1.AddressTypeIPv4,
					Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.7"}}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80)}},
				}
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				*o.(*discoveryv1.EndpointSlice).Ports[0].Port = port(revision)
			},
			fact: func(o client.Object) string { return fmt.Sprint(*o.(*discoveryv1.EndpointSlice).Ports[0].Port) },
		},
		{
			name: resources.ConfigMaps, list: func() client.ObjectList { return &corev1.ConfigMapList{} },
			make: func(*crashWalk, string) client.Object { return &corev1.ConfigMap{} },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*corev1.ConfigMap).Data = map[string]string{"revision": fmt.Sprint(revision)}
			},
			fact: func(o client.Object) string { return o.(*corev1.ConfigMap).Data["revision"] },
		},
		{
			name: resources.Secrets, list: func() client.ObjectList { return &corev1.SecretList{} },
			make: func(*crashWalk, string) client.Object { return &corev1.Secret{} },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*corev1.Secret).Data = map[string][]byte{"revision": fmt.Append(nil, revision)}
			},
			fact: func(o client.Object) string { return string(o.(*corev1.Secret).Data["revision"]) },
		},
		{
			name: resources.Claims, list: func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} },
			make: func(w *crashWalk, name string) client.Object {
				if name == crashName(1) { // in each namespace, and one of them gets the volume
					return claimOf(name, "own-"+crashName(0))
				}
				claim := newClaim(name)
				claim.Spec.StorageClassName = ptr.To(w.class())
				return claim
			},
			fact: func(o client.Object) string {
				c := o.(*corev1.PersistentVolumeClaim)
				return fmt.Sprint(c.Status.Phase, c.Status.Capacity.Storage())
			},
		},
		{
			name: resources.ResourceClaims, list: func() client.ObjectList { return &resourcev1.ResourceClaimList{} },
			make: func(_ *crashWalk, name string) client.Object { return claimOfDevice(name, "crash") },
			fact: existence,
		},
		{
			name: resources.Ingresses, list: func() client.ObjectList { return &networkingv1.IngressList{} },
			make: func(w *crashWalk, name string) client.Object {
				return &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: ptr.To(w.class()), Rules: []networkingv1.IngressRule{{
					Host: w.hostname("i-" + name), IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
						PathType: ptr.To(networkingv1.PathTypePrefix),
						Backend:  networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: crashName(1), Port: networkingv1.ServiceBackendPort{Number: 80}}},
					}}}},
				}}}}
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths[0].Path = urlPath(revision)
			},
			fact: func(o client.Object) string { return o.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths[0].Path },
		},
		{
			name: resources.NetworkPolicies, list: func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
			make: func(*crashWalk, string) client.Object {
				return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
					PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
				}}
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*networkingv1.NetworkPolicy).Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(port(revision)))}}
			},
			fact: func(o client.Object) string {
				return o.(*networkingv1.NetworkPolicy).Spec.Ingress[0].Ports[0].Port.String()
			},
		},
		{
			name: resources.Budgets, list: func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
			make: func(*crashWalk, string) client.Object {
				return &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
					MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: metav1.SetAsLabelSelector(map[string]string{"app": "crash"}),
				}}
			},
			fact: existence, // its numbers are the controller's
		},
		{
			name: resources.ServiceAccounts, list: func() client.ObjectList { return &corev1.ServiceAccountList{} },
			make: func(*crashWalk, string) client.Object { return &corev1.ServiceAccount{} }, fact: existence,
		},
	}, append(crashClasses(), crashExtensions()...)...)
}

// crashClasses are the rows of classes that Kubernetes itself has.
func crashClasses() []crashRow {
	return []crashRow{
		{
			name: resources.StorageClasses, cluster: true, from: true, list: func() client.ObjectList { return &storagev1.StorageClassList{} },
			make: func(_ *crashWalk, name string) client.Object { return storageClassOf(name, provisioner) },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*storagev1.StorageClass).AllowVolumeExpansion = ptr.To(revision%2 == 0)
			},
			fact: func(o client.Object) string { return fmt.Sprint(*o.(*storagev1.StorageClass).AllowVolumeExpansion) },
		},
		{
			name: resources.IngressClasses, cluster: true, from: true, list: func() client.ObjectList { return &networkingv1.IngressClassList{} },
			make: func(*crashWalk, string) client.Object {
				return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "host.example/controller"}}
			},
			fact: existence,
		},
		{
			name: resources.RuntimeClasses, cluster: true, from: true, list: func() client.ObjectList { return &nodev1.RuntimeClassList{} },
			make: func(*crashWalk, string) client.Object { return &nodev1.RuntimeClass{Handler: "of-the-host"} },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*nodev1.RuntimeClass).Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(revision+1), resource.BinarySI)}}
			},
			fact: func(o client.Object) string { return o.(*nodev1.RuntimeClass).Overhead.PodFixed.Memory().String() },
		},
		{
			name: resources.PriorityClasses, cluster: true, from: true, list: func() client.ObjectList { return &schedulingv1.PriorityClassList{} },
			make: func(w *crashWalk, name string) client.Object { return priorityClass(name, int32(w.random.IntN(50))) },
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*schedulingv1.PriorityClass).Description = fmt.Sprint(revision)
			},
			fact: func(o client.Object) string {
				c := o.(*schedulingv1.PriorityClass)
				return fmt.Sprint(c.Value, c.Description)
			},
		},
		{
			name: resources.ExportedPriorityClasses, cluster: true, list: func() client.ObjectList { return &schedulingv1.PriorityClassList{} },
			make: func(w *crashWalk, name string) client.Object { return priorityClass(name, int32(w.random.IntN(50))) },
			fact: func(o client.Object) string { return fmt.Sprint(o.(*schedulingv1.PriorityClass).Value) },
		},
		{
			name: resources.ExportedStorageClasses, cluster: true, list: func() client.ObjectList { return &storagev1.StorageClassList{} },
			make: func(_ *crashWalk, name string) client.Object { return storageClassOf(name, provisioner) },
			fact: existence,
		},
		{
			name: resources.ExportedVolumes, cluster: true, list: func() client.ObjectList { return &corev1.PersistentVolumeList{} },
			make: func(w *crashWalk, name string) client.Object { return ownVolume(name, w.space.Name+"/"+name) },
			fact: existence,
		},
	}
}

// crashExtensions are the rows of kinds that the host has by definitions.
func crashExtensions() []crashRow {
	return []crashRow{
		{
			name: resources.VolumeSnapshots, list: func() client.ObjectList { return &snapshotv1.VolumeSnapshotList{} },
			make: func(w *crashWalk, name string) client.Object { return snapshotOf(name, crashName(0), w.class()) },
			fact: existence,
		},
		{
			name: resources.SnapshotClasses, cluster: true, from: true, list: func() client.ObjectList { return &snapshotv1.VolumeSnapshotClassList{} },
			make: func(*crashWalk, string) client.Object {
				return &snapshotv1.VolumeSnapshotClass{Driver: "csi.host.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
			},
			fact: func(o client.Object) string { return string(o.(*snapshotv1.VolumeSnapshotClass).DeletionPolicy) },
		},
		{
			name: resources.Gateways, list: func() client.ObjectList { return &gatewayv1.GatewayList{} },
			make: func(w *crashWalk, name string) client.Object {
				g := newGateway(name, w.class(), w.hostname("g-"+name))
				g.Annotations = nil
				g.Spec.Listeners[0].Port, g.Spec.Listeners[0].Protocol, g.Spec.Listeners[0].TLS = 80, gatewayv1.HTTPProtocolType, nil
				return g
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*gatewayv1.Gateway).Spec.Listeners[0].Name = gatewayv1.SectionName(fmt.Sprintf("l%d", revision))
			},
			fact: func(o client.Object) string { return string(o.(*gatewayv1.Gateway).Spec.Listeners[0].Name) },
		},
		{
			name: resources.HTTPRoutes, list: func() client.ObjectList { return &gatewayv1.HTTPRouteList{} },
			make: func(w *crashWalk, name string) client.Object {
				return newRoute(name, crashName(0), w.hostname("r-"+name), crashName(1))
			},
			set: func(_ *crashWalk, o client.Object, revision int) {
				o.(*gatewayv1.HTTPRoute).Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{
					Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: ptr.To(urlPath(revision)),
				}}}
			},
			fact: func(o client.Object) string { return *o.(*gatewayv1.HTTPRoute).Spec.Rules[0].Matches[0].Path.Value },
		},
		{
			name: resources.GatewayClasses, cluster: true, from: true, list: func() client.ObjectList { return &gatewayv1.GatewayClassList{} },
			make: func(*crashWalk, string) client.Object { return newGatewayClass() },
			fact: existence,
		},
	}
}

// newCrashPod refers to a config map and a secret that may be absent, so that both are synced where only those in use are.
func newCrashPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "crash"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{Name: "main", Image: "nginx", EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: crashName(0)}, Optional: ptr.To(true)}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: crashName(0)}, Optional: ptr.To(true)}},
			}}},
		},
	}
}

func crashName(slot int) string   { return fmt.Sprintf("crash-%d", slot) }
func port(revision int) int32     { return int32(1000 + revision%60000) }
func urlPath(revision int) string { return fmt.Sprintf("/%d", revision) }
