// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// M4 (findings S13, S14): the labels by which controllers of a host are steered are
// refused under their own names, and all that a tenant's pod may have passes as it is
// translated.
func TestHostileLabelsOfPodsAreRefused(t *testing.T) {
	e := newEvaluator(t, hostpolicy.Pods(), nil)
	keys := []string{"pcns.berth.dev/x", "berth.dev.pcns.x", "sidecar.istio.io/inject", "istio.io/rev", "topology.kubernetes.io/zone", "a.berth.dev/x"}
	for _, entry := range translate.DefaultReservedLabels() {
		switch {
		case strings.HasSuffix(entry, "."):
			keys = append(keys, entry+"x/y")
		case strings.Contains(entry, "/"):
			keys = append(keys, entry)
		default:
			keys = append(keys, entry+"/x", "deep.er."+entry+"/x")
		}
	}
	for _, key := range keys {
		written := podOf(1, 0, 0)
		written.Labels[key] = "theirs"
		refused := !strings.HasPrefix(key, "berth.dev.")
		if message, _ := e.refuses(of("", "pods", "Pod", written)); (message != "") != refused {
			t.Errorf("label %s: %q", key, message)
		}
		v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "u", Labels: map[string]string{key: "theirs"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if message, _ := e.refuses(of("", "pods", "Pod", pod.ToHost(space(), v, pod.Surroundings{}))); message != "" {
			t.Errorf("label %s, translated: %s", key, message)
		}
	}
	for _, key := range []string{"app", "app.kubernetes.io/name", "app.kubernetes.io/component", "example.com/x", "mykubernetes.io/x", "pod-template-hash"} {
		pod := podOf(1, 0, 0)
		pod.Labels[key] = "ours"
		if message, _ := e.refuses(of("", "pods", "Pod", pod)); message != "" {
			t.Errorf("label %s: %s", key, message)
		}
	}
}

// What others put there stays, and what an admin says that they add passes from the
// start.
func TestWhatTheHostAddsStays(t *testing.T) {
	bare := newEvaluator(t, hostpolicy.Pods(), nil)
	said := newEvaluator(t, hostpolicy.Pods(), map[string]string{hostpolicy.AnnotationHostAdds: "annotation:example.com/a,label:istio.io/rev,finalizer:example.com/f"})
	added := podOf(1, 0, 0)
	added.Annotations["example.com/a"], added.Labels["istio.io/rev"], added.Finalizers = "x", "x", []string{"example.com/f"}
	if message, _ := bare.refuses(of("", "pods", "Pod", added)); message == "" {
		t.Error("what nobody said is let through")
	}
	if message, _ := said.refuses(of("", "pods", "Pod", added)); message != "" {
		t.Errorf("what the admin said: %s", message)
	}
	update := of("", "pods", "Pod", added.DeepCopy())
	update.old = added
	if message, _ := bare.refuses(update); message != "" {
		t.Errorf("what was there: %s", message)
	}
	update.object.SetFinalizers(nil)
	if message, _ := bare.refuses(update); message == "" {
		t.Error("a finalizer of others is taken away")
	}
}
