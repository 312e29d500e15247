// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// N1: a virtual node that is not what the space's release makes of its name is told
// from one that is, however old.
func TestAVirtualNodeIsKnownByAllThatItSays(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Node)
		want   bool
	}{
		"unchanged":     {"it is one", func(*corev1.Node) {}, true},
		"of any time":   {"when it was made says nothing", func(n *corev1.Node) { n.UID, n.ResourceVersion, n.CreationTimestamp = "u", "7", metav1.Now() }, true},
		"a release":     {"the space has another one since", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.35.0" }, false},
		"a label":       {"it would choose pods", func(n *corev1.Node) { n.Labels["zone"] = "a" }, false},
		"another name":  {"it stands for another", func(n *corev1.Node) { n.Name = "node-2" }, false},
		"a taint":       {"admission of upstream's sets some", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, false},
		"a finalizer":   {"it would stay", func(n *corev1.Node) { n.Finalizers = []string{"a/b"} }, false},
		"an annotation": {"nobody's", func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"an owner":      {"it would go", func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{UID: "u"}} }, false},
		"closed":        {"it was open", func(n *corev1.Node) { translate.NodeView{Closed: corev1.TaintEffectNoSchedule}.Restate(n) }, false},
		"no conditions": {"it is not ready", func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		"an address":    {"N1", func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := translate.VirtualNode("node-1", "v1.37.1", metav1.NewTime(time.Unix(1, 0)), translate.NodeView{})
			tc.change(node)
			if got := translate.IsVirtualNode(node, "v1.37.1", translate.NodeView{}); got != tc.want {
				t.Errorf("%s: is a virtual node: %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
