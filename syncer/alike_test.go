// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// side is what one of the two APIs shows of a kind: a fact for each object, by
// the virtual object's kind, namespace, name and UID.
type side map[string]string

// alike says how the space and its host namespace differ, nil if each virtual
// object that should have a host object has one and the other way round.
func (env *testEnv) alike(ctx context.Context) error {
	space, host := side{}, side{}
	return errors.Join(env.look(ctx, space, host), differ(space, host))
}

func differ(space, host side) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(space)) {
		if fact, there := host[key]; !there {
			errs = append(errs, fmt.Errorf("%s is not on the host", key))
		} else if fact != space[key] {
			errs = append(errs, fmt.Errorf("%s: the space says %q, the host %q", key, space[key], fact))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(host)) {
		if _, there := space[key]; !there {
			errs = append(errs, fmt.Errorf("%s is left over on the host", key))
		}
	}
	return errors.Join(errs...)
}

func (env *testEnv) look(ctx context.Context, space, host side) error {
	for _, look := range []func(context.Context, side, side) error{
		env.lookAtPods, env.lookAtConfigs, env.lookAtServices, env.lookAtClaims,
	} {
		if err := look(ctx, space, host); err != nil {
			return err
		}
	}
	return nil
}

func key(kind, namespace, name string, uid types.UID) string {
	return fmt.Sprintf("%s %s/%s (%s)", kind, namespace, name, uid)
}

// add notes a host object under its virtual identity; objects without one are
// not the syncer's.
func (s side) add(env *testEnv, kind string, o metav1.Object, fact string) error {
	id, ours := translate.IdentityOf(o)
	if !ours {
		return nil
	}
	if id.Space != env.space.Name || o.GetName() != env.space.HostName(id.Namespace, id.Name, limit(kind)) {
		return fmt.Errorf("host %s %s says that it is %v", kind, o.GetName(), id)
	}
	at := key(kind, id.Namespace, id.Name, id.UID)
	if _, twice := s[at]; twice {
		return fmt.Errorf("%s is on the host twice", at)
	}
	s[at] = fact
	return nil
}

func limit(kind string) int {
	if kind == "service" {
		return translate.LimitLabel
	}
	return translate.LimitSubdomain
}

func (env *testEnv) lookAtPods(ctx context.Context, space, host side) error {
	ours, err := env.virtual.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	theirs, err := env.host.CoreV1().Pods(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fact := func(phase corev1.PodPhase, node string, ended *metav1.Time) string {
		return fmt.Sprintf("%s on %q, ending %t", phase, node, ended != nil)
	}
	for _, v := range ours.Items {
		if v.Status.Phase != corev1.PodRunning {
			hostName := env.space.HostName(v.Namespace, v.Name, translate.LimitSubdomain)
			i := slices.IndexFunc(theirs.Items, func(h corev1.Pod) bool { return h.Name == hostName })
			if i < 0 {
				return fmt.Errorf("pod %s/%s is %s, and not on the host", v.Namespace, v.Name, v.Status.Phase)
			}
			h := theirs.Items[i]
			return fmt.Errorf("pod %s/%s is %s on %q %v, on the host it is %s on %q %v", v.Namespace, v.Name,
				v.Status.Phase, v.Spec.NodeName, v.Status.Conditions, h.Status.Phase, h.Spec.NodeName, h.Status.Conditions)
		}
		space[key("pod", v.Namespace, v.Name, v.UID)] = fact(v.Status.Phase, v.Spec.NodeName, v.DeletionTimestamp)
	}
	tokens := map[types.UID]string{}
	for _, h := range theirs.Items {
		if err := host.add(env, "pod", &h, fact(h.Status.Phase, env.space.NodeAlias(h.Spec.NodeName), h.DeletionTimestamp)); err != nil {
			return err
		}
		tokens[h.UID] = h.Name
	}
	return env.lookAtTokens(ctx, tokens)
}

// lookAtTokens expects one token secret for each of the host pods, and no other.
func (env *testEnv) lookAtTokens(ctx context.Context, hostPods map[types.UID]string) error {
	secrets, err := env.host.CoreV1().Secrets(env.space.HostNamespace()).List(ctx, metav1.ListOptions{LabelSelector: translate.LabelSpace})
	if err != nil {
		return err
	}
	for _, secret := range secrets.Items {
		if _, synced := translate.IdentityOf(&secret); synced {
			continue
		}
		owner := metav1.GetControllerOf(&secret)
		if owner == nil || hostPods[owner.UID] != owner.Name {
			return fmt.Errorf("secret %s belongs to no pod: %v", secret.Name, owner)
		}
		delete(hostPods, owner.UID)
	}
	if len(hostPods) > 0 {
		return fmt.Errorf("pods without tokens: %v", hostPods)
	}
	return nil
}

func (env *testEnv) lookAtConfigs(ctx context.Context, space, host side) error {
	pods, err := env.virtual.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	maps, secrets := map[string]bool{}, map[string]bool{}
	for _, pod := range pods.Items {
		for _, v := range pod.Spec.Volumes {
			if v.ConfigMap != nil {
				maps[pod.Namespace+"/"+v.ConfigMap.Name] = true
			}
			if v.Projected == nil {
				continue
			}
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					maps[pod.Namespace+"/"+source.ConfigMap.Name] = true
				}
			}
		}
		for _, from := range pod.Spec.Containers[0].EnvFrom {
			if from.SecretRef != nil {
				secrets[pod.Namespace+"/"+from.SecretRef.Name] = true
			}
		}
	}
	virtualMaps, err := env.virtual.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range virtualMaps.Items {
		if maps[v.Namespace+"/"+v.Name] {
			space[key("config map", v.Namespace, v.Name, v.UID)] = fmt.Sprint(v.Data)
		}
	}
	virtualSecrets, err := env.virtual.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range virtualSecrets.Items {
		if secrets[v.Namespace+"/"+v.Name] {
			space[key("secret", v.Namespace, v.Name, v.UID)] = fmt.Sprint(v.Data)
		}
	}
	hostMaps, err := env.host.CoreV1().ConfigMaps(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range hostMaps.Items {
		if err := host.add(env, "config map", &h, fmt.Sprint(h.Data)); err != nil {
			return err
		}
	}
	hostSecrets, err := env.host.CoreV1().Secrets(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range hostSecrets.Items {
		if err := host.add(env, "secret", &h, fmt.Sprint(h.Data)); err != nil {
			return err
		}
	}
	return nil
}

func (env *testEnv) lookAtServices(ctx context.Context, space, host side) error {
	fact := func(s *corev1.Service) string {
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, fmt.Sprint(p.Name, p.Protocol, p.Port, p.TargetPort.String(), p.NodePort))
		}
		return fmt.Sprint(s.Spec.Type, s.Spec.ClusterIPs, ports)
	}
	ours, err := env.virtual.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	selectorless := map[string]bool{}
	for _, v := range ours.Items {
		space[key("service", v.Namespace, v.Name, v.UID)] = fact(&v)
		selectorless[v.Namespace+"/"+v.Name] = translate.HasOwnEndpoints(&v)
	}
	theirs, err := env.host.CoreV1().Services(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range theirs.Items {
		if err := host.add(env, "service", &h, fact(&h)); err != nil {
			return err
		}
	}
	virtualSlices, err := env.virtual.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range virtualSlices.Items {
		if selectorless[v.Namespace+"/"+v.Labels[discoveryv1.LabelServiceName]] {
			space[key("slice", v.Namespace, v.Name, v.UID)] = fmt.Sprint(len(v.Endpoints))
		}
	}
	hostSlices, err := env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range hostSlices.Items {
		if err := host.add(env, "slice", &h, fmt.Sprint(len(h.Endpoints))); err != nil {
			return err
		}
	}
	return nil
}

// lookAtClaims looks at claims and at the volumes behind them, on both sides.
func (env *testEnv) lookAtClaims(ctx context.Context, space, host side) error {
	fact := func(c *corev1.PersistentVolumeClaim) string {
		return fmt.Sprint(c.Status.Phase, c.Status.Capacity.Storage(), ptr.Deref(c.Spec.StorageClassName, ""), c.DeletionTimestamp != nil)
	}
	ours, err := env.virtual.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	bound := map[string]bool{}
	for _, v := range ours.Items {
		space[key("claim", v.Namespace, v.Name, v.UID)] = fact(&v)
		if v.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %s/%s is %s", v.Namespace, v.Name, v.Status.Phase)
		}
		bound[translate.VolumeName(&v)] = true
	}
	theirs, err := env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range theirs.Items {
		if err := host.add(env, "claim", &h, fact(&h)); err != nil {
			return err
		}
	}
	volumes, err := env.virtual.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range volumes.Items {
		if !bound[v.Name] || v.Status.Phase != corev1.VolumeBound {
			return fmt.Errorf("volume %s is %s, of a claim that is there: %t", v.Name, v.Status.Phase, bound[v.Name])
		}
		delete(bound, v.Name)
	}
	if len(bound) > 0 {
		return fmt.Errorf("claims without volumes: %s", strings.Join(slices.Sorted(maps.Keys(bound)), ", "))
	}
	hostVolumes, err := env.host.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, h := range hostVolumes.Items {
		if h.Spec.ClaimRef != nil && h.Spec.ClaimRef.Namespace == env.space.HostNamespace() && !slices.ContainsFunc(theirs.Items, func(c corev1.PersistentVolumeClaim) bool {
			return c.UID == h.Spec.ClaimRef.UID
		}) {
			return fmt.Errorf("volume %s is left over on the host", h.Name)
		}
	}
	return nil
}
