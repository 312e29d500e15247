// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func known(string, string, types.UID) bool { return true }

func podWithAddress(uid, nodeName, address string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: nodeName},
		Status:     corev1.PodStatus{Phase: phase, PodIP: address},
	}
}

func TestNoTwoPodsHaveTheSameAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := newNodes(2)
		a := newAddresses(nodes, known)
		held := map[string]string{} // address by pod
		// Pods from before a restart hold what they were given.
		for i := range rapid.IntRange(0, 5).Draw(t, "old") {
			address := nodes[0].pods.Addr().As4()
			address[3] = byte(1 + 3*i)
			uid := "old-" + strconv.Itoa(i)
			a.observe(podWithAddress(uid, nodes[0].name, netip.AddrFrom4(address).String(), corev1.PodRunning))
			held[uid] = netip.AddrFrom4(address).String()
		}
		for i := range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				for uid := range held {
					a.release(types.UID(uid))
					delete(held, uid)
					break
				}
				continue
			}
			n := rapid.SampledFrom(nodes).Draw(t, "node")
			uid := "new-" + strconv.Itoa(i)
			got, err := a.ofPod(n.name, false, uid, "pod", "default")
			if err != nil {
				t.Fatal(err)
			}
			if again, err := a.ofPod(n.name, false, uid, "pod", "default"); err != nil || again[0] != got[0] {
				t.Fatalf("asked again: %v, %v, want %v", again, err, got)
			}
			if !n.pods.Contains(netip.MustParseAddr(got[0])) || got[0] == n.pods.Addr().String() {
				t.Fatalf("%s is not a pod's address of %s", got[0], n.pods)
			}
			for other, address := range held {
				if address == got[0] {
					t.Fatalf("%s is held by %s", address, other)
				}
			}
			held[uid] = got[0]
		}
	})
}

func TestAddressesOfANodeAreFreedAndRunOut(t *testing.T) {
	n := newNode(1)
	a := newAddresses([]node{n}, known)
	count := 1<<(32-podRangeBits) - 1
	for i := range count {
		if _, err := a.ofPod(n.name, false, strconv.Itoa(i), "pod", "default"); err != nil {
			t.Fatalf("pod %d of %d: %v", i, count, err)
		}
	}
	if got, err := a.ofPod(n.name, false, "one-too-many", "pod", "default"); err == nil || !strings.Contains(err.Error(), "used up") {
		t.Fatalf("pod beyond the range got %v, %v", got, err)
	}
	ended := podWithAddress("7", n.name, "", corev1.PodSucceeded)
	a.observe(ended)
	if _, err := a.ofPod(n.name, false, "next", "pod", "default"); err != nil {
		t.Errorf("after a pod has ended: %v", err)
	}
}

func TestAddressOfAPodThatIsGoneIsNotTaken(t *testing.T) {
	n := newNode(1)
	gone := true
	a := newAddresses([]node{n}, func(string, string, types.UID) bool { return !gone })
	if got, err := a.ofPod(n.name, false, "uid", "pod", "default"); err == nil {
		t.Errorf("a pod that is gone got %v", got)
	}
	if len(a.used) != 0 {
		t.Errorf("taken for ever: %v", a.used)
	}
}

func TestAddressesWrittenByHandAreNotTaken(t *testing.T) {
	n := newNode(1)
	a := newAddresses([]node{n}, known)
	mine := n.pods.Addr().Next().String()
	a.observe(podWithAddress("first", n.name, mine, corev1.PodRunning))
	for reason, pod := range map[string]*corev1.Pod{
		"another pod has it":      podWithAddress("second", n.name, mine, corev1.PodRunning),
		"it is not of the range":  podWithAddress("third", n.name, "10.0.0.1", corev1.PodRunning),
		"it is no address":        podWithAddress("fourth", n.name, "nonsense", corev1.PodRunning),
		"the node is not ours":    podWithAddress("fifth", "elsewhere", n.pods.Addr().Next().Next().String(), corev1.PodRunning),
		"the pod has none so far": podWithAddress("sixth", n.name, "", corev1.PodPending),
	} {
		a.observe(pod)
		if len(a.byPod) != 1 || a.byPod["first"].String() != mine {
			t.Errorf("%s, yet it was taken: %v", reason, a.byPod)
		}
	}
}

func TestPodOfHostNetworkHasItsNodesAddress(t *testing.T) {
	n := newNode(3)
	a := newAddresses([]node{n}, known)
	got, err := a.ofPod(n.name, true, "uid", "pod", "default")
	if err != nil || got[0] != n.address.String() {
		t.Errorf("got %v, %v, want %s", got, err, n.address)
	}
}
