// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubernetes/pkg/fieldpath"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// askingPod has path in a variable, a downward API volume and a projected one.
func askingPod(path string) *corev1.Pod {
	v := sample.PlainPod()
	ref := func() *corev1.ObjectFieldSelector {
		return &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}
	}
	items := []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: ref()}}
	v.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "F", ValueFrom: &corev1.EnvVarSource{FieldRef: ref()}}}
	v.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox", Env: []corev1.EnvVar{{Name: "F", ValueFrom: &corev1.EnvVarSource{FieldRef: ref()}}}}}
	v.Spec.Volumes = []corev1.Volume{
		{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}},
		{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}},
		}}},
	}
	return v
}

// hostPaths are the field paths of a host pod.
func hostPaths(host *corev1.Pod) []string {
	var paths []string
	for _, ref := range sample.FindAll[corev1.ObjectFieldSelector](&host.Spec) {
		paths = append(paths, ref.FieldPath)
	}
	return paths
}

// S4: wherever a pod asks for its metadata, a kubelet of the host answers what
// one of the space's own would have.
func TestTheDownwardAPITellsTheSpacesSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := sample.Of(t, "path", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
			"metadata.labels['app']", "metadata.labels['app.kubernetes.io/name']", "metadata.labels['berth.dev/space']", "metadata.labels['none']",
			"metadata.annotations['note']", "metadata.annotations['Upper.Case/Key']", "metadata.annotations['berth.dev/uid']")
		drawn := sample.TenantPod(t)
		v := askingPod(path)
		v.ObjectMeta = drawn.ObjectMeta
		want, err := fieldpath.ExtractFieldPathAsString(v, path)
		if err != nil {
			t.Fatalf("extract %s from the virtual pod: %v", path, err)
		}
		host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
		paths := hostPaths(host)
		if len(paths) != 4 {
			t.Fatalf("of 4 references, %d are left", len(paths))
		}
		for _, hostPath := range paths {
			got, err := fieldpath.ExtractFieldPathAsString(host, hostPath)
			if err != nil || got != want {
				t.Fatalf("%s is %q in the space; on the host it is %s, which is %q (%v)", path, want, hostPath, got, err)
			}
		}
	})
}

// N1, N2: what a pod would learn of its host from the downward API, it learns of
// itself, or by alias.
func TestTheDownwardAPITellsNothingOfTheHost(t *testing.T) {
	cases := map[string]struct {
		reason string
		want   string
	}{
		"status.hostIP":           {"the pod's own address is the only one of the two that it could use", "status.podIP"},
		"status.hostIPs":          {"the same, of both families", "status.podIPs"},
		"status.podIP":            {"pods know their own addresses", "status.podIP"},
		"status.podIPs":           {"pods know their own addresses", "status.podIPs"},
		"spec.nodeName":           {"the alias is there once the pod is scheduled", "metadata.annotations['berth.dev/node']"},
		"spec.serviceAccountName": {"the host pod has none", "metadata.annotations['berth.dev/service-account']"},
		"spec.hostname":           {"a path that Kubernetes does not know now; it may later", "metadata.annotations['berth.dev/unknown']"},
		"metadata.finalizers['x']": {
			"a subscript where there is none now", "metadata.annotations['berth.dev/unknown']",
		},
	}
	for path, tc := range cases {
		t.Run(path, func(t *testing.T) {
			host := pod.ToHost(sample.Demo(), askingPod(path), sample.Surroundings{})
			for _, got := range hostPaths(host) {
				if got != tc.want {
					t.Errorf("%s: %s became %s, want %s", tc.reason, path, got, tc.want)
				}
			}
			if path == "spec.serviceAccountName" && host.Annotations["berth.dev/service-account"] != "default" {
				t.Errorf("%s: annotations %v", tc.reason, host.Annotations)
			}
		})
	}
}

// Annotations may be large, and those of the tenant's that nothing asks for
// could steer what runs on the host.
func TestOnlyWhatIsAskedForIsCopied(t *testing.T) {
	v := sample.PlainPod()
	v.Annotations = map[string]string{"note": "x", "other": "y"}
	if got := pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Annotations; len(got) != 3 {
		t.Errorf("annotations of a pod that asks for none: %v", got)
	}
	v = askingPod("metadata.annotations['note']")
	v.Annotations = map[string]string{"note": "x", "other": "y"}
	host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	if len(host.Annotations) != 4 {
		t.Errorf("annotations of a pod that asks for one: %v", host.Annotations)
	}
	for key, value := range host.Annotations {
		if value == "y" || !translate.Owned(key) {
			t.Errorf("annotation %s=%s goes down", key, value)
		}
	}
}

// N2: the node is told, by its alias, to the pods that ask for it, and once
// it is known.
func TestTellNodeTellsTheAliasToThoseWhoAsk(t *testing.T) {
	space := sample.Demo()
	scheduled := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}}
	cases := map[string]struct {
		reason string
		v      *corev1.Pod
		have   *corev1.Pod
		want   string
	}{
		"Asked":        {"the downward API reads the annotation", askingPod("spec.nodeName"), scheduled, space.NodeAlias("node-1")},
		"NotAsked":     {"a write to the host for nothing", sample.PlainPod(), scheduled, ""},
		"NotScheduled": {"no node is on no node", askingPod("spec.nodeName"), &corev1.Pod{}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wanted := pod.ToHost(space, tc.v, sample.Surroundings{})
			pod.TellNode(space, wanted, tc.have)
			if got := wanted.Annotations[translate.AnnotationNode]; got != tc.want {
				t.Errorf("%s: node %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// N1: no path leads to a field of the host pod but its own addresses.
func FuzzFieldPath(f *testing.F) {
	for _, path := range append(sample.TenantPaths(), "metadata.labels", "metadata.annotations['", "']", "['']", "metadata.labels['a']['b']", "x']") {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		for _, got := range hostPaths(pod.ToHost(sample.Demo(), askingPod(path), sample.Surroundings{})) {
			base, key, subscript := fieldpath.SplitMaybeSubscriptedPath(got)
			if got != "status.podIP" && got != "status.podIPs" && (!subscript || base != "metadata.annotations" || !translate.Owned(key)) {
				t.Errorf("%q became %q", path, got)
			}
			if errs := validation.IsQualifiedName(key); subscript && len(errs) > 0 {
				t.Errorf("%q became %q, which no host takes: %v", path, got, errs)
			}
		}
	})
}
