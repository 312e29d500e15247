// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// TestHostBehavesAsACluster starts one host, and asks it for what a user, the
// syncer and the isolation of spaces ask a real cluster for (X3).
func TestHostBehavesAsACluster(t *testing.T) {
	client := newClient(t, startHost(t))
	tests := map[string]func(*testing.T, kubernetes.Interface, string){
		"PodsOfADeploymentRunOnSimulatedNodes":           deploymentRuns,
		"JobCompletes":                                   jobCompletes,
		"DeletedPodOfAJobFailsAndIsReplaced":             deletedJobPodIsReplaced,
		"PodWithoutAnOwnerEndsIfItMay":                   barePodEnds,
		"ClaimOfAStatefulSetIsBoundAndItsVolumeGoesToo":  claimIsProvisioned,
		"ClaimOfAClassThatBindsAtOnceIsBoundWithoutAPod": claimIsProvisionedAtOnce,
		"DeletedPodsGoAway":                              podsGoAway,
		"ServiceHasEndpoints":                            serviceHasEndpoints,
		"PodSecurityOfANamespaceIsEnforced":              podSecurityHolds,
		"QuotaAndLimitsOfANamespaceAreEnforced":          quotaHolds,
	}
	t.Run("AllAtOnce", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, client, newNamespace(t, client, nil))
			})
		}
	})
	// Afterwards, since the pods on a node go with it.
	t.Run("DeletedNodeComesBack", func(t *testing.T) { nodeComesBack(t, client) })
}

func deploymentRuns(t *testing.T, client kubernetes.Interface, namespace string) {
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](6),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 6 {
			err = fmt.Errorf("%d of 6 pods are available", d.Status.AvailableReplicas)
		}
		return err
	})
	pods := listPods(t, client, namespace)
	seen, on := map[string]bool{}, map[string]bool{}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
		}
		i := slices.IndexFunc(newNodes(3), func(n node) bool { return n.name == pod.Spec.NodeName })
		if i < 0 {
			t.Fatalf("pod %s is on %q", pod.Name, pod.Spec.NodeName)
		}
		n := newNode(i + 1)
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || !n.pods.Contains(address) || seen[pod.Status.PodIP] {
			t.Errorf("pod %s has address %q, want one of its own in %s", pod.Name, pod.Status.PodIP, n.pods)
		}
		if pod.Status.HostIP != n.address.String() {
			t.Errorf("pod %s has host address %q, want %s", pod.Name, pod.Status.HostIP, n.address)
		}
		seen[pod.Status.PodIP], on[pod.Spec.NodeName] = true, true
	}
	if len(on) != 3 {
		t.Errorf("6 pods are on %d nodes, want them spread over 3", len(on))
	}
}

func jobCompletes(t *testing.T, client kubernetes.Interface, namespace string) {
	spec := podSpec()
	spec.RestartPolicy = corev1.RestartPolicyOnFailure
	_, err := client.BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec: batchv1.JobSpec{
			Completions: ptr.To[int32](3),
			Parallelism: ptr.To[int32](3),
			Template:    corev1.PodTemplateSpec{Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		job, err := client.BatchV1().Jobs(namespace).Get(ctx, "once", metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		}) {
			err = fmt.Errorf("job is not complete: %v", job.Status)
		}
		return err
	})
}

func deletedJobPodIsReplaced(t *testing.T, client kubernetes.Interface, namespace string) {
	spec := podSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := client.BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "long"},
		Spec: batchv1.JobSpec{
			PodReplacementPolicy: ptr.To(batchv1.Failed),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pod-complete.stage.kwok.x-k8s.io/delay": "1h"}},
				Spec:       spec,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	running := func(ctx context.Context) (*corev1.Pod, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		if len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning {
			return nil, fmt.Errorf("want one running pod: %d, %v", len(list.Items), list.Items)
		}
		return &list.Items[0], nil
	}
	var first *corev1.Pod
	eventually(t, func(ctx context.Context) (err error) { first, err = running(ctx); return err })
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		second, err := running(ctx)
		if err == nil && second.UID == first.UID {
			err = errors.New("the deleted pod is there still")
		}
		return err
	})
	job, err := client.BatchV1().Jobs(namespace).Get(t.Context(), "long", metav1.GetOptions{})
	if err != nil || job.Status.Failed != 1 {
		t.Errorf("job says that %d pods failed, want 1 (%v)", job.Status.Failed, err)
	}
}

// The host pod of a space's Job has no owner on the host.
func barePodEnds(t *testing.T, client kubernetes.Interface, namespace string) {
	for name, delay := range map[string]string{"soon": "", "late": "1h"} {
		pod := newPod(name)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		if delay != "" {
			pod.Annotations = map[string]string{"pod-complete.stage.kwok.x-k8s.io/delay": delay}
		}
		createPod(t, client, namespace, pod)
	}
	awaitPhase(t, client, namespace, "soon", corev1.PodSucceeded)
	awaitPhase(t, client, namespace, "late", corev1.PodRunning)
}

func claimIsProvisioned(t *testing.T, client kubernetes.Interface, namespace string) {
	ctx := t.Context()
	labels := map[string]string{"app": "db"}
	_, err := client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("demo--data", "")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitPhase(t, client, namespace, "db-0", corev1.PodRunning)
	volume := awaitBound(t, client, namespace, "demo--data-db-0")
	if !strings.HasPrefix(volume.Name, "demo--data-db-0-") {
		t.Errorf("volume is named %s, want it to begin as its claim", volume.Name)
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values; !slices.Equal(got, []string{pod.Spec.NodeName}) {
		t.Errorf("volume is on %v, its pod on %s", got, pod.Spec.NodeName)
	}

	if err := client.AppsV1().StatefulSets(namespace).Delete(ctx, "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "demo--data-db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitVolumeGone(t, client, volume.Name)
}

func claimIsProvisionedAtOnce(t *testing.T, client kubernetes.Interface, namespace string) {
	ctx := t.Context()
	class := storageClass()
	class.Name, class.Annotations, class.VolumeBindingMode = "immediate", nil, nil
	if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	if _, err := claims.Create(ctx, newClaim("data", "immediate"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := awaitBound(t, client, namespace, "data")
	if err := claims.Delete(ctx, "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitVolumeGone(t, client, volume.Name)
}

func podsGoAway(t *testing.T, client kubernetes.Interface, namespace string) {
	const count = 20
	for i := range count {
		createPod(t, client, namespace, newPod(fmt.Sprintf("pod-%d", i)))
	}
	for i := range count {
		awaitPhase(t, client, namespace, fmt.Sprintf("pod-%d", i), corev1.PodRunning)
	}
	// The usual grace period: somebody has to play the kubelet's part.
	if err := client.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d of %d pods are left", len(list.Items), count)
		}
		return err
	})
}

func nodeComesBack(t *testing.T, client kubernetes.Interface) {
	nodes := client.CoreV1().Nodes()
	before, err := nodes.Get(t.Context(), "host-node-3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		after, err := nodes.Get(ctx, before.Name, metav1.GetOptions{})
		if err == nil && (after.UID == before.UID || !isReady(after)) {
			err = errors.New("node is not back and ready")
		}
		return err
	})
}

func serviceHasEndpoints(t *testing.T, client kubernetes.Interface, namespace string) {
	pod := newPod("web")
	pod.Labels = map[string]string{"app": "web"}
	createPod(t, client, namespace, pod)
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range slices.Items {
			if len(s.Endpoints) == 1 && ptr.Deref(s.Endpoints[0].Conditions.Ready, false) {
				return nil
			}
		}
		return errors.New("no ready endpoint")
	})
}

// The last word on what a tenant's pod may be is the host's (M4).
func podSecurityHolds(t *testing.T, client kubernetes.Interface, _ string) {
	namespace := newNamespace(t, client, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})
	pod := newPod("nosy")
	pod.Spec.HostNetwork = true
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hostNetwork") {
		t.Errorf("a pod in the host's network got %v, want it forbidden", err)
	}
	createPod(t, client, namespace, newPod("plain"))
}

// The last word on how much a tenant uses is the host's (Q3).
func quotaHolds(t *testing.T, client kubernetes.Interface, namespace string) {
	ctx := t.Context()
	_, err := client.CoreV1().LimitRanges(namespace).Create(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type:           corev1.LimitTypeContainer,
			DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceRequestsCPU: resource.MustParse("250m"),
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		quota, err := client.CoreV1().ResourceQuotas(namespace).Get(ctx, "quota", metav1.GetOptions{})
		if err == nil && quota.Status.Hard == nil {
			err = errors.New("quota has no status")
		}
		return err
	})
	createPod(t, client, namespace, newPod("first"))
	createPod(t, client, namespace, newPod("second"))
	_, err = client.CoreV1().Pods(namespace).Create(ctx, newPod("third"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("the pod beyond the quota got %v, want it forbidden", err)
	}
	// What is deleted no longer counts, and the quota controller says so.
	if err := client.CoreV1().Pods(namespace).Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, newPod("fourth"), metav1.CreateOptions{})
		return err
	})
}
