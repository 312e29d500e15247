// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// S7: a pod that the host lost is gone, and its controller makes another.
func TestAHostPodDeletedByHandIsGoneOrReplaced(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "lost-pods")
	demo.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", ns)
	before := demo.awaitPods(t, ns, "app=web", 2)
	alone := demo.run(t, ns, newPod("alone"))
	forced := demo.run(t, ns, newPod("forced"))

	hostPods := host.CoreV1().Pods(hostNamespace)
	for _, name := range []string{before[0].Name, alone.Name} {
		if err := hostPods.Delete(t.Context(), hostName(ns, name), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	now := int64(0)
	if err := hostPods.Delete(t.Context(), hostName(ns, forced.Name), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, "pod", demo.CoreV1().Pods(ns).Get, alone.Name)
	awaitGone(t, "pod", demo.CoreV1().Pods(ns).Get, forced.Name)
	awaitGone(t, "pod", demo.CoreV1().Pods(ns).Get, before[0].Name)
	after := uids(demo.awaitPods(t, ns, "app=web", 2))
	if !after[before[1].UID] {
		t.Error("the deployment's other pod was replaced, too")
	}
}

// S7: what has no life of its own is made again.
func TestAHostObjectDeletedByHandIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "made-again")
	v := demo.serve(t, ns, newService("web"))
	pod := demo.run(t, ns, newPod("reader", mounting("settings", "password"), makes(t, demo, ns, "settings", "password")))
	configMaps, secrets, services := host.CoreV1().ConfigMaps(hostNamespace), host.CoreV1().Secrets(hostNamespace), host.CoreV1().Services(hostNamespace)

	old := await(t, configMaps.Get, hostName(ns, "settings"), there)
	if err := errors.Join(
		configMaps.Delete(t.Context(), hostName(ns, "settings"), metav1.DeleteOptions{}),
		secrets.Delete(t.Context(), hostName(ns, "password"), metav1.DeleteOptions{}),
		services.Delete(t.Context(), hostName(ns, "web"), metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	await(t, configMaps.Get, hostName(ns, "settings"), func(c *corev1.ConfigMap) error {
		if c.UID == old.UID {
			return errors.New("it is the old one")
		}
		return expect("its data", c.Data["key"], "value")
	})
	await(t, secrets.Get, hostName(ns, "password"), func(s *corev1.Secret) error { return expect("its data", string(s.Data["key"]), "value") })
	await(t, services.Get, hostName(ns, "web"), func(s *corev1.Service) error {
		return expect("its address", s.Spec.ClusterIP, v.Spec.ClusterIP) // which clients know
	})
	if now := demo.awaitRunning(t, ns, "reader"); now.UID != pod.UID {
		t.Error("the pod was replaced")
	}

	// So is a pod's token secret, of which the tenant knows nothing.
	token := podToken(t, host, hostNamespace, hostName(ns, "reader"))
	if err := secrets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: labelNamespace + "=" + ns}); err != nil {
		t.Fatal(err)
	}
	if again := podToken(t, host, hostNamespace, hostName(ns, "reader")); again == "" || again == token {
		t.Error("the pod has no new token")
	}
}

// mounting lets a pod use a config map and a secret.
func mounting(configMap, secret string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
			}}},
			corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	}
}

// makes creates a config map and a secret that hold key: value.
func makes(t *testing.T, c *cluster, ns, configMap, secret string) func(*corev1.Pod) {
	t.Helper()
	_ = must(c.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMap}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{}))(t)
	_ = must(c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{"key": []byte("value")},
	}, metav1.CreateOptions{}))(t)
	return func(*corev1.Pod) {}
}

// claiming lets a pod use a claim.
func claiming(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// S7: data that is gone is not hidden behind an empty volume of its name.
func TestABoundClaimWhoseHostClaimIsDeletedIsLost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "lost-claims")
	claims := demo.CoreV1().PersistentVolumeClaims(ns)
	if _, err := claims.Create(t.Context(), newClaim("data"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.run(t, ns, newPod("user", claiming("data")))
	await(t, claims.Get, "data", bound)
	demo.kubectl(t, "delete", "pod", "user", "-n", ns)

	hostClaims := host.CoreV1().PersistentVolumeClaims(hostNamespace)
	if err := hostClaims.Delete(t.Context(), hostName(ns, "data"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, claims.Get, "data", func(c *corev1.PersistentVolumeClaim) error {
		return expect("phase of the claim", c.Status.Phase, corev1.ClaimLost)
	})
	demo.awaitEvent(t, ns, "PersistentVolumeClaim", "data", "ClaimLost")
	// It stays so when the claim is looked at again.
	demo.kubectl(t, "label", "pvc", "data", "look=again", "-n", ns)
	demo.run(t, ns, newPod("later"))
	if _, err := hostClaims.Get(t.Context(), hostName(ns, "data"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the host has a claim of that name again: %v", err)
	}

	demo.kubectl(t, "delete", "pvc", "data", "-n", ns)
	if _, err := claims.Create(t.Context(), newClaim("data"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	demo.run(t, ns, newPod("user-again", claiming("data")))
	await(t, claims.Get, "data", bound)
}

// byHand creates an object in a space's host namespace. Where many count up its
// quota at once, Kubernetes wants creates repeated.
func byHand[T any](t *testing.T, create func(context.Context, T, metav1.CreateOptions) (T, error), object T) (created T) {
	t.Helper()
	if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() (err error) {
		created, err = create(t.Context(), object, metav1.CreateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return created
}

// S7: what is not Berth's is not touched, and the tenant is told.
func TestAForeignHostObjectIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "foreign")
	hostPods, hostConfigMaps := host.CoreV1().Pods(hostNamespace), host.CoreV1().ConfigMaps(hostNamespace)

	squatter := byHand(t, hostPods.Create, newPod(hostName(ns, "squatted")))
	squatter = host.awaitRunning(t, hostNamespace, squatter.Name)
	strangers := map[string]*corev1.ConfigMap{}
	for name, labels := range map[string]map[string]string{
		"stranger": nil, "stranger-with-labels": {labelSpace: "demo", labelNamespace: ns}, "stranger-of-another": {labelSpace: "another"},
		hostName(ns, "settings"): nil,
	} {
		strangers[name] = byHand(t, hostConfigMaps.Create, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"key": "foreign"},
		})
		t.Cleanup(func() { _ = hostConfigMaps.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	}

	pod := newPod("squatted", mounting("settings", "password"), makes(t, demo, ns, "settings", "password"))
	if _, err := demo.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{"Pod": "squatted", "ConfigMap": "settings"} {
		if e := demo.awaitEvent(t, ns, kind, name, "HostNameTaken"); strings.Contains(e.Message, hostNamespace) {
			t.Errorf("the event names the host namespace: %s", e.Message)
		}
	}
	demo.run(t, ns, newPod("neighbour"))
	demo.kubectl(t, "delete", "pod", "neighbour", "-n", ns)
	for name, was := range strangers {
		is := must(hostConfigMaps.Get(t.Context(), name, metav1.GetOptions{}))(t)
		if is.UID != was.UID || is.ResourceVersion != was.ResourceVersion {
			t.Errorf("config map %s of somebody else was changed: %v", name, is)
		}
	}
	if is := must(hostPods.Get(t.Context(), squatter.Name, metav1.GetOptions{}))(t); is.UID != squatter.UID || is.ResourceVersion != squatter.ResourceVersion {
		t.Errorf("pod %s of somebody else was changed: %v", squatter.Name, is.ObjectMeta)
	}

	// With the name free, the pod comes to the host by itself.
	if err := errors.Join(
		hostPods.Delete(t.Context(), squatter.Name, metav1.DeleteOptions{}), hostConfigMaps.Delete(t.Context(), hostName(ns, "settings"), metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	demo.awaitRunning(t, ns, "squatted")
	await(t, hostConfigMaps.Get, hostName(ns, "settings"), func(c *corev1.ConfigMap) error { return expect("its data", c.Data["key"], "value") })
}

// S7: the tenant's fields are the tenant's, others' annotations are theirs.
func TestAChangeByHandOnTheHostIsUndone(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "by-hand")
	demo.run(t, ns, newPod("steady", func(p *corev1.Pod) { p.Labels = map[string]string{"color": "blue"} }))
	patch := `{"metadata":{"labels":{"color":"red","more":"x","berth.dev/namespace":"other"},"annotations":{"example.com/by-host":"kept"}}}`
	if _, err := host.CoreV1().Pods(hostNamespace).Patch(t.Context(), hostName(ns, "steady"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, host.CoreV1().Pods(hostNamespace).Get, hostName(ns, "steady"), func(h *corev1.Pod) error {
		return errors.Join(
			expect("label color", h.Labels["color"], "blue"), expect("label more", h.Labels["more"], ""),
			expect("label of the namespace", h.Labels[labelNamespace], ns), expect("the host's annotation", h.Annotations["example.com/by-host"], "kept"))
	})
}
