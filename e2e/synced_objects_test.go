// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A service is made on the host before the space takes it in. When that never
// comes about, as berth is killed in between, the host's is left for a minute.
const (
	withoutReservations = iota
	withReservations
)

// checkSynced holds a space against its host namespace (S7): every object
// that should have a host object has one that records its UID, and every host
// object has such a virtual object; what Berth makes for a pod has that pod.
func checkSynced(t *testing.T, space, host *cluster, name string, reservations int) error {
	t.Helper()
	ctx, all := t.Context(), metav1.ListOptions{}
	there := "berth-" + name
	var errs []error
	fail := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	pods, err := space.CoreV1().Pods("").List(ctx, all)
	fail(err)
	services, err := space.CoreV1().Services("").List(ctx, all)
	fail(err)
	configMaps, err := space.CoreV1().ConfigMaps("").List(ctx, all)
	fail(err)
	secrets, err := space.CoreV1().Secrets("").List(ctx, all)
	fail(err)
	claims, err := space.CoreV1().PersistentVolumeClaims("").List(ctx, all)
	fail(err)
	hostPods, err := host.CoreV1().Pods(there).List(ctx, all)
	fail(err)
	hostServices, err := host.CoreV1().Services(there).List(ctx, all)
	fail(err)
	hostConfigMaps, err := host.CoreV1().ConfigMaps(there).List(ctx, all)
	fail(err)
	hostSecrets, err := host.CoreV1().Secrets(there).List(ctx, all)
	fail(err)
	hostClaims, err := host.CoreV1().PersistentVolumeClaims(there).List(ctx, all)
	fail(err)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}

	used := map[string]bool{}
	for i := range pods.Items {
		references(&pods.Items[i], used)
	}
	usedConfigMaps := slices.DeleteFunc(configMaps.Items, func(c corev1.ConfigMap) bool { return !used["configmap/"+c.Namespace+"/"+c.Name] })
	usedSecrets := slices.DeleteFunc(secrets.Items, func(s corev1.Secret) bool { return !used["secret/"+s.Namespace+"/"+s.Name] })
	tokens, hostTenants := splitTokens(hostSecrets.Items)
	if reservations == withReservations {
		hostServices.Items = slices.DeleteFunc(hostServices.Items, func(s corev1.Service) bool { return identityOf(&s).uid == "" })
	}

	fail(mirrored("pods", name, pods.Items, hostPods.Items))
	fail(mirrored("services", name, services.Items, hostServices.Items))
	fail(mirrored("config maps in use", name, usedConfigMaps, hostConfigMaps.Items))
	fail(mirrored("secrets in use", name, usedSecrets, hostTenants))
	fail(mirrored("claims", name, claims.Items, hostClaims.Items))
	fail(tokensHavePods(tokens, hostPods.Items))
	return errors.Join(errs...)
}

// mirrored compares what one side has with what the other says it has.
func mirrored[T any, P interface {
	*T
	metav1.Object
}](kind, space string, virtual, host []T) error {
	wanted, found := map[identity]int{}, map[identity]int{}
	for i := range virtual {
		v := P(&virtual[i])
		wanted[identity{space, v.GetNamespace(), v.GetName(), v.GetUID()}]++
	}
	for i := range host {
		h := P(&host[i])
		// The host's own, in every namespace.
		if h.GetName() == "kube-root-ca.crt" {
			continue
		}
		found[identityOf(h)]++
	}
	var wrong []string
	for id := range wanted {
		if found[id] != 1 {
			wrong = append(wrong, fmt.Sprintf("%d of %v", found[id], id))
		}
	}
	for id := range found {
		if wanted[id] == 0 {
			wrong = append(wrong, fmt.Sprintf("one of %v, which the space has not", id))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.SortFunc(wrong, cmp.Compare)
	return fmt.Errorf("host has %s of space %s: %v", kind, space, wrong)
}

// references adds what a pod mounts and reads, as kind/namespace/name.
func references(pod *corev1.Pod, used map[string]bool) {
	add := func(kind, name string) { used[kind+"/"+pod.Namespace+"/"+name] = true }
	for _, s := range pod.Spec.ImagePullSecrets {
		add("secret", s.Name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			add("configmap", v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add("secret", v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add("configmap", s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add("secret", s.Secret.Name)
			}
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, e := range c.EnvFrom {
			if e.ConfigMapRef != nil {
				add("configmap", e.ConfigMapRef.Name)
			}
			if e.SecretRef != nil {
				add("secret", e.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				add("configmap", e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add("secret", e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
}

// splitTokens parts the secrets that Berth makes for pods from the tenant's.
func splitTokens(all []corev1.Secret) (tokens, tenants []corev1.Secret) {
	for _, s := range all {
		if metav1.GetControllerOf(&s) != nil {
			tokens = append(tokens, s)
		} else {
			tenants = append(tenants, s)
		}
	}
	return tokens, tenants
}

// tokensHavePods wants one token secret for each pod that mounts one, and no other.
func tokensHavePods(tokens []corev1.Secret, pods []corev1.Pod) error {
	var errs []error
	owned := map[string]int{}
	for i := range tokens {
		owned[string(metav1.GetControllerOf(&tokens[i]).UID)]++
	}
	for _, p := range pods {
		wants := 0
		for _, v := range p.Spec.Volumes {
			if v.Projected != nil && p.Status.Phase == corev1.PodRunning {
				wants = 1
			}
		}
		if got := owned[string(p.UID)]; got < wants || got > 1 {
			errs = append(errs, fmt.Errorf("host has %d token secrets of pod %s, want %d", got, p.Name, wants))
		}
		delete(owned, string(p.UID))
	}
	if len(owned) > 0 {
		errs = append(errs, fmt.Errorf("host has token secrets of pods that are gone: %v", owned))
	}
	return errors.Join(errs...)
}
