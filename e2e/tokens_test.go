// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podToken is the token that a running pod finds in its file system.
func podToken(t *testing.T, host *cluster, namespace, pod string) (token string) {
	t.Helper()
	eventually(t, func() error {
		list, err := host.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			if owner := metav1.GetControllerOf(&s); owner != nil && owner.Name == pod && len(s.Data) == 1 {
				for _, value := range s.Data {
					token = string(value)
				}
				return nil
			}
		}
		return fmt.Errorf("host pod %s has no secret with a token", pod)
	})
	return token
}

// S4, A3, T2: the token is the space's, bound to account and pod, and of no use
// on the host (nor in another space, see TestTwoSpacesOfOneHost).
func TestAPodsTokenIsOfItsSpace(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "tokens")
	demo.kubectl(t, "create", "serviceaccount", "robot", "-n", ns)
	pod := demo.run(t, ns, newPod("bearer", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "robot" }))
	token := podToken(t, host, hostNamespace, hostName(ns, "bearer"))

	asPod := must(kubernetes.NewForConfig(withToken(demo.config, token)))(t)
	review := must(asPod.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	user := review.Status.UserInfo
	if want := "system:serviceaccount:" + ns + ":robot"; user.Username != want {
		t.Errorf("the token is %s's, want %s", user.Username, want)
	}
	if got := user.Extra["authentication.kubernetes.io/pod-uid"]; len(got) != 1 || got[0] != string(pod.UID) {
		t.Errorf("the token is bound to pod %v, want %s", got, pod.UID)
	}

	onHost := must(kubernetes.NewForConfig(withToken(host.config, token)))(t)
	if _, err := onHost.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the host answers the token with %v, want Unauthorized", err)
	}
	// Its rights are what the tenant gives it.
	if _, err := asPod.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing pods gets %v, want Forbidden", err)
	}
	demo.kubectl(t, "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount="+ns+":robot", "-n", ns)
	eventually(t, func() error {
		_, err := asPod.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return err
	})
	demo.kubectl(t, "delete", "pod", "bearer", "-n", ns)
	eventually(t, func() error {
		_, err := asPod.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of a pod that is gone gets %w, want Unauthorized", err)
		}
		return nil
	})
}

// N2: where nodes are virtual objects of the space, a pod's token names the pod's.
func TestAPodsTokenNamesItsVirtualNode(t *testing.T) {
	t.Parallel()
	b := start(t, configured(t, "spaceDefaults: {sync: [{resource: nodes, value: all}]}"))
	demo, host := b.demo(t), b.host(t)
	demo.run(t, "default", newPod("bearer"))
	token := podToken(t, host, hostNamespace, hostName("default", "bearer"))
	pod := must(demo.CoreV1().Pods("default").Get(t.Context(), "bearer", metav1.GetOptions{}))(t)
	node := must(demo.CoreV1().Nodes().Get(t.Context(), pod.Spec.NodeName, metav1.GetOptions{}))(t)

	asPod := must(kubernetes.NewForConfig(withToken(demo.config, token)))(t)
	review := must(asPod.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	for key, want := range map[string]string{"node-name": node.Name, "node-uid": string(node.UID)} {
		if got := review.Status.UserInfo.Extra["authentication.kubernetes.io/"+key]; len(got) != 1 || got[0] != want {
			t.Errorf("the token says %s %v, want %s", key, got, want)
		}
	}
}
