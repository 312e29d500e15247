// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// words are what fill puts into strings: what an attacker would try in a name,
// a field path, a label's key or an enumeration, whichever the field takes.
func words() []string {
	return []string{
		"", "a", "web", "a--b", "default", "kube-system", "demo--default--web", "other--default--web", "../../etc", "kube-root-ca.crt",
		"metadata.name", "metadata.uid", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.labels['app']",
		"metadata.annotations['berth.dev/node']", "metadata.labels['berth.dev/space']", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "spec.hostname", "status.phase", "metadata.labels['", "']", "x['y']",
		"berth.dev/space", "berth.dev/namespace", "label.berth.dev/x", "app", "kubernetes.io/hostname", "topology.kubernetes.io/zone",
		"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node-role.kubernetes.io/control-plane",
		"Exists", "Equal", "In", "NotIn", "DoesNotExist", "NoExecute", "NoSchedule", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None",
		"system-node-critical", "default-scheduler", "runc", "Unconfined", "Localhost", "RuntimeDefault", "SYS_ADMIN", "NET_RAW", "ALL", "Unmasked",
		"kernel.msgmax", "spc_t", "windows", "linux", "HTTP", "TCP", "10.0.0.1", "fd00::1", "PersistentVolumeClaim", "ndots",
	}
}

// Fill puts anything that the type allows into every exported field below v:
// objects that no API server would admit, and fields that do not exist yet.
func Fill(t *rapid.T, v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse(rapid.SampledFrom([]string{"0", "1", "100m", "1Gi"}).Draw(t, "quantity"))
		return
	case *metav1.Time:
		*x = metav1.NewTime(time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "time"), 0))
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(rapid.Int32Range(0, 9).Draw(t, "number"))
		return
	case *metav1.FieldsV1:
		return
	}
	// Few of many fields, so that an object stays small and its parts differ.
	some := func() bool { return rapid.IntRange(0, 3).Draw(t, "some") == 0 }
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.SampledFrom(words()).Draw(t, "word"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(rapid.Int64Range(-1, 99).Draw(t, "int"))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, "byte")))
	case reflect.Pointer:
		if depth > 0 && some() {
			v.Set(reflect.New(v.Type().Elem()))
			Fill(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && some() {
			n := rapid.IntRange(0, 2).Draw(t, "len")
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				Fill(t, v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 && some() {
			v.Set(reflect.MakeMap(v.Type()))
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			Fill(t, key, depth-1)
			Fill(t, value, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(t, v.Field(i), depth)
			}
		}
	}
}

// HostilePod draws a pod with anything in any field, well-formed or not.
func HostilePod(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{}
	Fill(t, reflect.ValueOf(pod).Elem(), 8)
	// Where translation does its work, more than a quarter must be there.
	for _, list := range []reflect.Value{
		reflect.ValueOf(&pod.Spec.Volumes).Elem(), reflect.ValueOf(&pod.Spec.Containers).Elem(),
		reflect.ValueOf(&pod.Spec.InitContainers).Elem(), reflect.ValueOf(&pod.Spec.EphemeralContainers).Elem(), reflect.ValueOf(&pod.Spec.Tolerations).Elem(),
		reflect.ValueOf(&pod.Spec.TopologySpreadConstraints).Elem(), reflect.ValueOf(&pod.Spec.ImagePullSecrets).Elem(),
	} {
		if list.Len() == 0 {
			list.Set(reflect.MakeSlice(list.Type(), 1, 1))
			Fill(t, list.Index(0), 6)
		}
	}
	if pod.Spec.Affinity == nil && rapid.Bool().Draw(t, "affinity") {
		pod.Spec.Affinity = &corev1.Affinity{}
		Fill(t, reflect.ValueOf(pod.Spec.Affinity).Elem(), 8)
	}
	pod.Namespace = rapid.SampledFrom([]string{"default", "a--b", "kube-system"}).Draw(t, "namespace")
	pod.Name = rapid.SampledFrom([]string{"web", "a--b", "demo--default--web", "x.y"}).Draw(t, "name")
	return pod
}

// AnySurroundings draws the space around a pod of the namespace.
func AnySurroundings(t *rapid.T, namespace string) Surroundings {
	var in Surroundings
	for range rapid.IntRange(0, 4).Draw(t, "namespaces") {
		in.Namespaces = append(in.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   rapid.SampledFrom([]string{"default", "a--b", "kube-system", "team"}).Draw(t, "namespace"),
			Labels: map[string]string{"app": rapid.SampledFrom([]string{"", "a", "web"}).Draw(t, "label")},
		}})
	}
	used := map[string]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "services") {
		service := AnyService(t, namespace, rapid.SampledFrom([]string{"db", "web-app", "kubernetes", "db-service", "x"}).Draw(t, "service"))
		if !used[service.Name] {
			in.Services = append(in.Services, service)
		}
		used[service.Name] = true
	}
	if rapid.Bool().Draw(t, "has API") {
		in.API = APIService()
	}
	return in
}

// AnyService draws a service of that name.
func AnyService(t *rapid.T, namespace, name string) *corev1.Service {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	service.Spec.ClusterIP = rapid.SampledFrom([]string{"", "None", "10.1.0.7", "fd00::7"}).Draw(t, "cluster IP")
	for i := range rapid.IntRange(0, 2).Draw(t, "ports") {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: rapid.SampledFrom([]string{"", "http", "a-b"}).Draw(t, "port name"), Port: int32(80 + i),
			Protocol: rapid.SampledFrom([]corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP}).Draw(t, "protocol"),
		})
	}
	return service
}

// APIService is the space's default/kubernetes.
func APIService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.1.0.1", Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}},
	}
}
