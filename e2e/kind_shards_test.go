// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// shardsRelease is the namespace of the release, and shardSpaces are its spaces.
const shardsRelease = "berth-shards-test"

var shardSpaces = []string{"pod-a", "pod-b", "pod-c", "pod-d", "pod-e", "pod-f"}

// dedicatedOnShards is a further space, with a process of its own in a pod.
const dedicatedOnShards = "pod-own"

// D5, D6, T9: the chart's pods share the spaces of a platform. A space moves, one pod after the other is upgraded, and with them the pod of a
// dedicated space, and one is killed: no request of the other spaces fails, and none of any space while pods are upgraded. The pods of tenants
// run on, and reach their APIs.
func TestShardsOfARealClusterAreUpgradedUnderLoad(t *testing.T) {
	host, images := realCluster(t, envImage)
	ownRelease(t, host, shardsRelease, append(slices.Clone(shardSpaces), dedicatedOnShards)...)
	set := ofImage(images[0]) + ",replicas=3,storage.size=1Gi,service.type=NodePort,networkPolicy.enabled=true,spaces[0].name=" + shardSpaces[0]
	values := []string{"../charts/berth", "--namespace", shardsRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "4m", "--set", set}
	helm(t, append([]string{"install", "berth"}, values...)...)
	s := &shards{host: host, kubeconfig: host.kubeconfig, platform: shardsRelease}
	on := map[string]int{}
	for _, name := range shardSpaces[1:] {
		applySpace(t, host, name, "{}")
	}
	for _, name := range shardSpaces {
		host.kubectl(t, "wait", "--for=condition=Ready", "space/"+name, "--timeout=120s")
		on[s.shardOf(t, name)]++
	}
	if len(on) != 3 {
		t.Errorf("the spaces are on %v", slices.Sorted(maps.Keys(on)))
	}
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	spaces, clients := map[string]*cluster{}, []*cluster{}
	for _, name := range shardSpaces {
		spaces[name] = reached(t, host, node, shardsRelease, name)
		clients = append(clients, spaces[name])
	}
	checkInside(t, spaces["pod-a"], "before", images[0])
	spaces["pod-a"].run(t, "default", newPod("real", func(p *corev1.Pod) { p.Spec.Containers[0].Image = pauseImage(t, host) }))
	spaces["pod-a"].awaitRunning(t, "default", "real")
	uids := s.hostPods(t, "berth-pod-a")
	execThroughShards(t, spaces["pod-a"])

	t.Run("a space moves, and its pods with it", func(t *testing.T) {
		l, stop := loaded(t, clients)
		to := "berth-0"
		if s.shardOf(t, "pod-a") == to {
			to = "berth-1"
		}
		s.berth(t, "space", "move", "pod-a", "--to", to, "--timeout", "180s")
		stop()
		l.check(t)
		checkInside(t, spaces["pod-a"], "moved", images[0])
	})
	t.Run("a dedicated space moves without its pod", func(t *testing.T) {
		applySpace(t, host, dedicatedOnShards, "{isolation: Dedicated}")
		pod := host.awaitRunning(t, shardsRelease, "berth-"+dedicatedOnShards+"-dedicated-0")
		space, from := reached(t, host, node, shardsRelease, dedicatedOnShards), s.shardOf(t, dedicatedOnShards)
		others := slices.DeleteFunc([]string{"berth-0", "berth-1", "berth-2"}, func(name string) bool { return name == from })
		for _, to := range append(others, from) {
			l, stop := loaded(t, []*cluster{space})
			s.berth(t, "space", "move", dedicatedOnShards, "--to", to, "--timeout", "180s")
			stop()
			l.check(t)
			if now := host.awaitRunning(t, shardsRelease, pod.Name); now.UID != pod.UID || restarts(now) > 0 {
				t.Errorf("on shard %s, the space's process is in another pod, or was restarted", to)
			}
		}
		checkInside(t, space, "moved", images[0])
	})
	t.Run("an upgrade under load fails no request", func(t *testing.T) {
		l, stop := loaded(t, append(clients, reached(t, host, node, shardsRelease, dedicatedOnShards)))
		helm(t, append([]string{"upgrade", "berth"}, append(values, "--set", "log.verbosity=1")...)...)
		stop()
		l.check(t)
		checkInside(t, spaces["pod-a"], "upgraded", images[0])
	})
	t.Run("a shard that is killed takes no other with it, and comes back", func(t *testing.T) {
		killed := s.shardOf(t, "pod-a")
		var others []*cluster
		for _, name := range shardSpaces {
			if s.shardOf(t, name) != killed {
				others = append(others, spaces[name])
			}
		}
		before := must(host.CoreV1().Pods(shardsRelease).Get(t.Context(), killed, metav1.GetOptions{}))(t)
		if err := host.CoreV1().Pods(shardsRelease).Delete(t.Context(), killed, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		await(t, host.CoreV1().Pods(shardsRelease).Get, killed, func(after *corev1.Pod) error {
			if after.UID == before.UID || !isRunning(after) {
				return errors.New("there is no new pod yet")
			}
			return nil
		})
		for i, other := range others {
			if _, err := other.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("space %d of another shard: %v", i, err)
			}
		}
		eventually(t, func() error {
			_, err := spaces["pod-a"].CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			return err
		})
		checkInside(t, spaces["pod-a"], "again", images[0])
		checkInside(t, reached(t, host, node, shardsRelease, dedicatedOnShards), "again", images[0])
	})
	for _, uid := range uids {
		if !slices.Contains(s.hostPods(t, "berth-pod-a"), uid) {
			t.Error("a pod of a tenant did not run on")
		}
	}
}

// execThroughShards runs a command in a pod by connections that reach each of three shards, with all but certainty: the one that has the
// space, and the others, which have sent it ordinary requests before.
func execThroughShards(t *testing.T, space *cluster) {
	t.Helper()
	for range 10 {
		config := rest.CopyConfig(space.config)
		config.Dial = (&net.Dialer{}).DialContext // so that each client has a connection of its own
		client := must(kubernetes.NewForConfig(config))(t)
		must(client.CoreV1().Pods("default").Get(t.Context(), "real", metav1.GetOptions{}))(t)
	}
	for range 10 {
		if out := space.kubectl(t, "exec", "real", "--", "/pause", "-v"); !strings.Contains(out, "pause") {
			t.Errorf("exec prints %q", out)
		}
	}
}
