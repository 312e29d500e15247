// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/resources"
)

func pod(containers int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}}
	for i := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: fmt.Sprint("nginx:", i)})
	}
	return p
}

func one(path, expression string) []v1alpha1.SyncPatch {
	return []v1alpha1.SyncPatch{{Name: "the-patch", Resource: resources.Pods, Path: path, Expression: expression}}
}

func compile(t *testing.T, specs []v1alpha1.SyncPatch) *patches.Patches {
	t.Helper()
	compiled, errs := patches.Compile(specs, "solar", field.NewPath("spec", "patches"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return compiled
}

func TestPatchesSetFieldsOfTheHostObjectInTheirOrder(t *testing.T) {
	p := compile(t, append(append(append(
		one("spec.containers[*].image", `"mirror/" + value`),
		one("spec.nodeSelector.pool", `object.metadata.namespace == "default" ? tenant.name : value`)...),
		one("metadata.labels.space", `space.name + string(value == null)`)...),
		one("metadata.labels.app", `null`)...))
	if p.Any(resources.Services) || !p.Any(resources.Pods) {
		t.Error("the patches are not those of pods only")
	}
	source, host := pod(2), pod(2)
	host.Namespace, host.Name = "berth-demo", "default--web"
	before := host.DeepCopy()
	got, err := p.Apply(t.Context(), resources.Pods, "demo", source, host)
	if err != nil {
		t.Fatal(err)
	}
	want := host.DeepCopy()
	want.Labels = map[string]string{"space": "demotrue"}
	want.Spec.NodeSelector = map[string]string{"pool": "solar"}
	want.Spec.Containers[0].Image, want.Spec.Containers[1].Image = "mirror/nginx:0", "mirror/nginx:1"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, host); diff != "" {
		t.Errorf("the object itself was changed:\n%s", diff)
	}
}

func TestPatchesThatAreWrongAreNamed(t *testing.T) {
	for _, c := range []struct {
		patch v1alpha1.SyncPatch
		want  string
	}{
		{v1alpha1.SyncPatch{Resource: "nodes", Path: "spec.a", Expression: "1"}, `spec.patches[0].resource: Unsupported value: "nodes"`},
		{v1alpha1.SyncPatch{Resource: "pods", Path: "spec.container", Expression: "1"}, `spec.patches[0].path: Invalid value: "spec.container": path "spec.container": ["spec"] has no field container`},
		{v1alpha1.SyncPatch{Resource: "pods", Path: "metadata.name", Expression: "1"}, "can't be set"},
		{v1alpha1.SyncPatch{Resource: "pods", Path: `metadata.labels["berth.dev/space"]`, Expression: "'other'"}, "can't be set"},
		{v1alpha1.SyncPatch{Resource: "pods", Path: "metadata.annotations.a", Expression: "'a'"}, "only labels of pods"},
		{v1alpha1.SyncPatch{Resource: "services", Path: "metadata.labels.a", Expression: "'a'"}, "only labels of pods"},
		{v1alpha1.SyncPatch{Resource: "pods", Path: "spec.nodeName", Expression: "valu"}, "spec.patches[0].expression"},
		{v1alpha1.SyncPatch{Resource: "pods", Path: "spec.nodeName", Expression: "tenant.labels.a"}, "undefined field 'labels'"},
	} {
		_, errs := patches.Compile([]v1alpha1.SyncPatch{c.patch}, "", field.NewPath("spec", "patches"))
		if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.patch, err, c.want)
		}
	}
}

func TestObjectsThatCantBePatchedSayWhichPatchAndWhy(t *testing.T) {
	for _, c := range []struct{ path, expression, want string }{
		{"spec.nodeName", "object.spec.missing", "no such key"},
		{"spec.priority", "'high'", "cannot unmarshal string into Go struct field PodSpec.spec.priority"},
		{"spec.containers[0]", "{'nam': 'a'}", `unknown field "nam"`},
		{"spec.containers[7].image", "'a'", "the index may be at most"},
	} {
		_, err := compile(t, one(c.path, c.expression)).Apply(t.Context(), resources.Pods, "demo", pod(1), pod(1))
		if !patches.IsError(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `patch "the-patch"`) {
			t.Errorf("%s: the error is %v, want %q", c.path, err, c.want)
		}
	}
}

// A tenant decides how many elements the lists of its objects have.
func TestHostilePatchedListsAreBounded(t *testing.T) {
	p := compile(t, one("spec.containers[*].env[*].value", "value"))
	host := pod(100)
	for i := range host.Spec.Containers {
		host.Spec.Containers[i].Env = make([]corev1.EnvVar, 11)
	}
	if _, err := p.Apply(t.Context(), resources.Pods, "demo", pod(1), host); !patches.IsError(err) || !strings.Contains(err.Error(), "more than 1000 fields") {
		t.Error(err)
	}
}
