// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// S6: containers find their space's services by name, from their first moment
// on, and nothing of another space's or of the host's.
func (k *kindTest) names(t *testing.T) {
	template := k.runs("named", "serve", ":8080")
	for name, ip := range map[string]string{"named": "", "members": corev1.ClusterIPNone} {
		must(k.a.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: ip, Selector: template.Labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		}, metav1.CreateOptions{}))(t)
	}
	replicas := int32(2)
	must(k.a.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "named"},
		Spec:       appsv1.StatefulSetSpec{ServiceName: "members", Replicas: &replicas, Selector: metav1.SetAsLabelSelector(template.Labels), Template: template},
	}, metav1.CreateOptions{}))(t)
	k.a.awaitPods(t, "default", "app=named", 2)
	attempt := 0
	for url, want := range map[string]string{
		"http://named": "named-", "http://named.default.svc.cluster.local": "named-",
		"http://named-0.members:8080": "named-0 serves", "http://named-1.members.default.svc:8080": "named-1 serves",
	} {
		// A new pod's policies reach its node in their own time.
		eventually(t, func() error {
			attempt++
			return k.wget(t, k.a, 0, fmt.Sprintf("by-name-%d", attempt), url, corev1.PodSucceeded)
		})
		if out := k.logs(t, 0, fmt.Sprintf("by-name-%d", attempt)); !strings.HasPrefix(out, want) {
			t.Errorf("%s says %q, want %q", url, out, want)
		}
	}
	for name, url := range map[string]string{
		"of-another-space": "http://named.default.svc.cluster.local", "of-the-host": "http://kube-dns.kube-system.svc.cluster.local",
		"of-the-hosts-objects": "http://" + containerSpaces[0] + "--default--named." + k.on(0) + ".svc.cluster.local",
	} {
		if err := k.wget(t, k.b, 1, name, url, corev1.PodFailed); err != nil {
			t.Error(err)
		}
		if out := k.logs(t, 1, name); !strings.Contains(out, "no such host") {
			t.Errorf("of %s a pod of another space learns %q", url, out)
		}
	}
}

// S6: client-go's in-cluster config leads to the API of the pod's own space.
func (k *kindTest) api(t *testing.T) {
	must(k.a.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
	}, metav1.CreateOptions{}))(t)
	for name, args := range map[string][]string{"by-address": nil, "by-name": {"https://kubernetes.default.svc"}} {
		template := k.runs(name, args...)
		template.Spec.Containers[0].Image, template.Spec.RestartPolicy = k.asks, corev1.RestartPolicyNever
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "incluster-" + name}, Spec: template.Spec}
		must(k.a.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
		await(t, k.a.CoreV1().Pods("default").Get, pod.Name, func(pod *corev1.Pod) error {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
			}
			return nil
		})
		out := k.logs(t, 0, pod.Name)
		if !strings.HasPrefix(out, "system:serviceaccount:default:default\n") || !strings.Contains(out, pod.Name) {
			t.Errorf("%s: the pod says %q", name, out)
		}
	}
}
