// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// T8, M1: what of the host's nodes is told to spaces that are awake, and what
// wakes one that sleeps; and that no more is kept of a node.
func TestOnlyWhatConcernsASpaceOfANodeIsTold(t *testing.T) {
	node := func(version string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-node-1", UID: "u", ResourceVersion: version, Labels: map[string]string{"pool": "tenants", "other": "label"}}}
		n.Annotations, n.Spec.ProviderID, n.Status.NodeInfo.MachineID = map[string]string{"a": "secret"}, "secret", "secret"
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"secret"}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}} // S20: kept, and passed on to no space
		if change != nil {
			change(n)
		}
		return n
	}
	label := func(key, value string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = value } }
	taint := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: key, Value: "kept", Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	for name, tc := range map[string]struct {
		reason       string
		before       *corev1.Node
		event        func(*Router) error
		tells, wakes bool
	}{
		"it comes":          {"there is one more", nil, func(f *Router) error { return f.Add(node("1", nil)) }, true, true},
		"it goes":           {"there is one less", node("1", nil), func(f *Router) error { return f.Delete(node("1", nil)) }, true, true},
		"its kubelet calls": {"it does so all the time", node("1", nil), func(f *Router) error { return f.Update(node("2", nil)) }, false, false},
		"it is listed anew": {"nothing is new", node("1", nil), func(f *Router) error { return f.Replace([]any{node("2", nil)}, "2") }, false, false},
		"unchanged":         {"a watch has begun anew, with thousands of them", node("1", nil), func(f *Router) error { return f.Replace([]any{node("1", nil)}, "1") }, false, false},
		"missing then":      {"it went unseen", node("1", nil), func(f *Router) error { return f.Replace(nil, "2") }, true, true},
		"another label":     {"who is awake looks again, though no placement is about it", node("1", nil), func(f *Router) error { return f.Update(node("2", label("rack", "7"))) }, true, false},
		"another space's":   {"who is awake looks again; who sleeps does not", node("1", nil), func(f *Router) error { return f.Update(node("2", label("disk", "ssd"))) }, true, false},
		"its label":         {"it is the space's no more", node("1", nil), func(f *Router) error { return f.Update(node("2", label("pool", "system"))) }, true, true},
		"cordoned":          {"it takes no pod", node("1", nil), func(f *Router) error { return f.Update(node("2", taint(corev1.TaintNodeUnschedulable))) }, true, true},
		"set apart":         {"it is the space's no more", node("1", nil), func(f *Router) error { return f.Update(node("2", taint("gpu"))) }, true, true},
		"apart all along":   {"it never was the space's", node("1", taint("gpu")), func(f *Router) error { return f.Delete(node("1", taint("gpu"))) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Host{}
			f := NewRouter("", nil)
			h.WatchNodes(f)
			var first []any
			if tc.before != nil {
				first = append(first, tc.before)
			}
			if err := f.Replace(first, "1"); err != nil {
				t.Fatal(err)
			}
			for _, kept := range f.All() {
				node := kept.(*corev1.Node)
				if !slices.Equal(nodeAddresses(node), []string{"192.0.2.7"}) {
					t.Errorf("of a node's addresses are kept %v", node.Status.Addresses)
				}
				if text := node.String(); strings.Contains(text, "secret") {
					t.Errorf("of a node is kept %s", text)
				}
			}
			told, woken := 0, 0
			if _, err := f.Subscribe("demo", func(client.Object) { told++ }); err != nil {
				t.Fatal(err)
			}
			stop := h.OnNodes("demo", translate.Placement{Selector: map[string]string{"pool": "tenants"}, ByName: true}, func() {
				if told == 0 {
					t.Error("a space that falls asleep is woken before its syncer, which may say that it is idle, is told")
				}
				woken++
			})
			told = 0
			if err := tc.event(f); err != nil {
				t.Fatal(err)
			}
			if (told > 0) != tc.tells || (woken > 0) != tc.wakes {
				t.Errorf("%s: told %d times and woken %d times, want it told: %t, woken: %t", tc.reason, told, woken, tc.tells, tc.wakes)
			}
			stop()
			woken = 0
			if err := f.Add(node("9", func(n *corev1.Node) { n.Name = "host-node-9" })); err != nil || woken > 0 {
				t.Errorf("a space that wants to know no more was woken %d times: %v", woken, err)
			}
		})
	}
}
