// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
)

func sizedConfigMap(name string, fill byte, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat(string(fill), size)}}
}

// mounting is a pod that mounts these config maps.
func mounting(name string, configMaps ...string) *corev1.Pod {
	pod := newPod(name)
	pod.Spec = plainPods(name, 1).Spec
	for _, configMap := range configMaps {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: configMap, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
		}})
	}
	return pod
}

// sizedOnHost waits until so many of the space's config maps of some size are on the host, and fails if there ever are more.
func (env *testEnv) sizedOnHost(t *testing.T, size, want int) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("see %d config maps on the host", want), func(ctx context.Context) error {
		all, err := env.host.CoreV1().ConfigMaps(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range all.Items {
			if len(all.Items[i].Data["data"]) == size {
				n++
			}
		}
		if n > want {
			t.Fatalf("%d are on the host, more than %d", n, want)
		}
		if n < want || !env.run.syncer.Idle() {
			return fmt.Errorf("there are %d, the syncer is idle: %t", n, env.run.syncer.Idle())
		}
		return nil
	})
}

// L3, S5: a space has no more bytes on the host than it may; what is too much gets an event, and comes when other objects are gone:
// also when the syncer was started anew, and knows of data by the shared watches only.
func TestHostileBytesOfASpaceOnTheHostAreBounded(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	env := newEnv(t, "bytes")
	env.limits = bounds.NewAccount(bounds.Limits{bounds.SyncedBytes: 2*size + 40<<10})
	env.begin(nil)
	maps := env.virtual.CoreV1().ConfigMaps("default")
	for i := range 4 {
		must(t, maps.Create, sizedConfigMap(fmt.Sprintf("c-%d", i), 'a', size))
	}
	must(t, env.virtual.CoreV1().Pods("default").Create, mounting("web", "c-0", "c-1", "c-2", "c-3"))
	env.sizedOnHost(t, size, 2)
	var refused []string
	testhost.Eventually(t, "hear of those that are too many", func(ctx context.Context) error {
		events, err := env.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		refused = nil
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ConfigMap" && strings.Contains(e.Message, "synced-bytes") && !slices.Contains(refused, e.InvolvedObject.Name) {
				refused = append(refused, e.InvolvedObject.Name)
			}
		}
		if len(refused) != 2 {
			return fmt.Errorf("told were %v", refused)
		}
		return nil
	})
	for i := range 4 { // one that is there
		if name := fmt.Sprintf("c-%d", i); name != refused[0] && name != refused[1] {
			if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	env.sizedOnHost(t, size, 2)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	env.begin(nil)
	env.sizedOnHost(t, size, 2)
}

// L3, S5: however often a tenant changes a large object that a pod mounts, it is written to the host now and then only,
// and what it was last is there in the end.
func TestHostileLargeObjectIsRewrittenSeldom(t *testing.T) {
	t.Parallel()
	const size, changes = 64 << 10, 60
	env := newEnv(t, "rewritten")
	var writes atomic.Int64
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodPut && strings.Contains(c.URL.Path, "/configmaps/") {
			writes.Add(1)
		}
		return send()
	})
	maps, began := env.virtual.CoreV1().ConfigMaps("default"), time.Now()
	must(t, maps.Create, sizedConfigMap("big", 'a', size))
	must(t, env.virtual.CoreV1().Pods("default").Create, mounting("web", "big"))
	env.sizedOnHost(t, size, 1)
	for i := range changes {
		if _, err := maps.Update(t.Context(), sizedConfigMap("big", byte('b'+i%20), size), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	last := sizedConfigMap("big", 'z', size)
	if _, err := maps.Update(t.Context(), last, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see what it was last", env.host.CoreV1().ConfigMaps(env.space.HostNamespace()).Get, env.hostName("big"), func(host *corev1.ConfigMap) error {
		if host.Data["data"] != last.Data["data"] {
			return errors.New("it is not the last")
		}
		return nil
	})
	if n, most := writes.Load(), int64(time.Since(began)/(10*time.Second))+1; n > most {
		t.Errorf("%d changes were %d writes, want at most %d", changes, n, most)
	}
}

// M4, S15: a space claims no more host names than it may, and none outside of its domains.
func TestHostileHostNamesAreBoundedAndInTheSpacesDomains(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "many-hosts")
	env.limits, env.domains = bounds.NewAccount(bounds.Limits{bounds.IngressHostnames: 2}), []string{"many-hosts.example"}
	env.ingressClass(t, "many-hosts", importLabel())
	env.begin(nil)
	ours, theirs := env.virtual.NetworkingV1().Ingresses("default"), env.host.NetworkingV1().Ingresses(env.space.HostNamespace())
	for _, name := range []string{"foreign.example", "many-hosts.example.com", "amany-hosts.example"} {
		id := strings.ReplaceAll(name, ".", "-")
		must(t, ours.Create, newIngress(id, "many-hosts", name))
		env.awaitWarning(t, "Ingress", id, name, "many-hosts.example")
	}
	for i := range 4 {
		must(t, ours.Create, newIngress(fmt.Sprintf("i-%d", i), "many-hosts", fmt.Sprintf("h-%d.many-hosts.example", i)))
	}
	served := func(ctx context.Context) (int, error) {
		all, err := theirs.List(ctx, metav1.ListOptions{})
		return len(all.Items), err
	}
	env.bounded(t, 2, served)
	all, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		name, there := fmt.Sprintf("i-%d", i), false
		for _, host := range all.Items {
			there = there || host.Name == env.hostName(name)
		}
		if !there {
			env.awaitWarning(t, "Ingress", name, "ingress-hostnames")
			continue
		}
		if err := ours.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	env.bounded(t, 2, served)
}

// S5: however much a tenant changes a large pod, the pod's binding and status come to the space.
func TestHostilePodWhoseUpdateWaitsIsReported(t *testing.T) {
	t.Parallel()
	const size = 100 << 10
	env := newEnv(t, "paced-pod")
	env.limits = bounds.NewAccount(bounds.Limits{bounds.SyncedBytesPerMinute: size + size/2})
	env.begin(nil)
	ours, theirs := env.virtual.CoreV1().Pods("default"), env.host.CoreV1().Pods(env.space.HostNamespace())
	pod := mounting("web")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("a", size)}}
	must(t, ours.Create, pod)
	awaited(t, "see that it runs", ours.Get, "web", func(v *corev1.Pod) error {
		if v.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s", v.Status.Phase)
		}
		return nil
	})
	if _, err := ours.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Patch(t.Context(), env.hostName("web"), types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see its status", ours.Get, "web", func(v *corev1.Pod) error {
		if v.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("its status is %v", v.Status)
		}
		return nil
	})
	host, err := theirs.Get(t.Context(), env.hostName("web"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range host.Labels {
		if label == "yes" {
			t.Error("its update did not wait: this tests nothing")
		}
	}
}
