// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches_test

import (
	"context"
	"errors"
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

func patch(name, path, expression string) v1alpha1.SyncPatch {
	return v1alpha1.SyncPatch{Name: name, Resource: resources.Pods, Path: path, Expression: expression}
}

func compile(t *testing.T, specs ...v1alpha1.SyncPatch) *patches.Patches {
	t.Helper()
	compiled, errs := patches.NewCompiler().Compile(specs, field.NewPath("spec", "patches"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return compiled
}

// of is the pod of a tenant's space.
func of(source *corev1.Pod) patches.Pod {
	return patches.Pod{Tenant: "solar", Space: "demo", Source: source}
}

func TestPatchesSetFieldsOfTheHostPodInTheirOrder(t *testing.T) {
	p := compile(t,
		patch("a", "spec.containers[*].image", `"mirror/" + value`),
		patch("b", "spec.nodeSelector.pool", `!has(object.status) && object.metadata.namespace == "default" ? tenant.name : value`),
		patch("c", "metadata.labels.space", `space.name + string(value == null)`),
		patch("d", "metadata.labels.app", `null`),
		patch("e", "spec.containers[0].image", `value + "@1"`),
		patch("f", "spec.containers[2].image", `"none"`), patch("g", "spec.initContainers[0].image", `"none"`))
	source, host := pod(2), pod(2)
	source.Status.Phase = corev1.PodRunning
	host.Namespace, host.Name = "berth-demo", "default--web"
	before := source.DeepCopy()
	want := host.DeepCopy()
	want.Labels = map[string]string{"space": "demotrue"}
	want.Spec.Containers[0].Image, want.Spec.Containers[1].Image = "mirror/nginx:0@1", "mirror/nginx:1"
	err := p.Any(t.Context(), of(source), host)
	if diff := cmp.Diff(want, host); diff != "" || err != nil {
		t.Errorf("what may change later: %v, (-want +got):\n%s", err, diff)
	}
	err = p.New(t.Context(), of(source), host)
	want.Spec.NodeSelector = map[string]string{"pool": "solar"}
	if diff := cmp.Diff(want, host); diff != "" || err != nil {
		t.Errorf("what can't change later: %v, (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(before, source); diff != "" {
		t.Errorf("the pod in the space was changed:\n%s", diff)
	}
	labeled := pod(1)
	if err := p.Labels(t.Context(), of(source), labeled); err != nil || labeled.Labels["space"] != "demotrue" || labeled.Spec.Containers[0].Image != "nginx:0" {
		t.Errorf("labels alone: %v, %+v", err, labeled)
	}
	if err := (*patches.Patches)(nil).Any(t.Context(), of(source), host); err != nil {
		t.Error(err)
	}
}

func TestPatchesThatAreWrongAreNamed(t *testing.T) {
	for _, c := range []struct {
		patch v1alpha1.SyncPatch
		want  string
	}{
		{v1alpha1.SyncPatch{Name: "a", Resource: "nodes", Path: "spec.tolerations", Expression: "1"}, `spec.patches[0].resource: Unsupported value: "nodes"`},
		{patch("", "spec.tolerations", "value"), "spec.patches[0].name: Required"},
		{patch("a", "spec.container", "1"), `spec.patches[0].path: Invalid value: "spec.container": of spec, patches may set affinity, containers`},
		{patch("a", "spec.containers", "value"), "name a field of each container"},
		{patch("a", "spec.containers[*]", "value"), "name a field of each container"},
		{patch("a", "spec.initContainers[0].name", "'a'"), "name a field of each container"},
		{patch("a", "spec.containers[*].resources.limits.cpu", "'1'"), "name a field of each container"},
		{patch("a", "spec.schedulerName", "'a'"), "of spec, patches may set"},
		{patch("a", `metadata.labels["app.kubernetes.io/instance"]`, "'a'"), "controllers of the host act on the label"},
		{patch("a", `metadata.labels["a b"]`, "'a'"), "is no key of a label"},
		{patch("a", "spec.containers[*].imag", "1"), `["spec"]["containers"][*] has no field imag`},
		{patch("a", "spec.hostNetwork", "true"), "of spec, patches may set"},
		{patch("a", "spec.serviceAccountName", "'berth-syncer'"), "of spec, patches may set"},
		{patch("a", "spec.nodeSelector", "{}"), "name a key"},
		{patch("a", "spec.nodeSelector[*]", "''"), "name a key"},
		{patch("a", "spec", "{}"), "of spec, patches may set"},
		{patch("a", "metadata.name", "''"), "can't be set"},
		{patch("a", "metadata.labels", "null"), "single labels only"},
		{patch("a", "metadata.annotations.a", "'a'"), "single labels only"},
		{patch("a", `metadata.labels["berth.dev/space"]`, "'other'"), "can't be set"},
		{patch("a", "spec.tolerations", "valu"), "spec.patches[0].expression"},
		{patch("a", "spec.tolerations", "tenant.labels.a"), "undefined field 'labels'"},
	} {
		_, errs := patches.NewCompiler().Compile([]v1alpha1.SyncPatch{c.patch}, field.NewPath("spec", "patches"))
		if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.patch, err, c.want)
		}
	}
	same := patch("same", "spec.tolerations", "value")
	_, errs := patches.NewCompiler().Compile([]v1alpha1.SyncPatch{same, same}, field.NewPath("spec", "patches"))
	if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), "spec.patches[1].name: Duplicate") {
		t.Errorf("two of one name: %v", err)
	}
}

func TestPodsThatCantBePatchedSayWhichPatchAndWhy(t *testing.T) {
	for _, c := range []struct{ path, expression, want string }{
		{"spec.dnsConfig", "object.spec.missing", "no such key"},
		{"spec.securityContext.runAsUser", "'root'", "cannot unmarshal string into Go struct field"},
		{"spec.tolerations", "[{'nam': 'a'}]", `unknown field "nam"`},
	} {
		host := pod(1)
		before := host.DeepCopy()
		err := compile(t, patch("the-patch", c.path, c.expression)).New(t.Context(), of(pod(1)), host)
		if is := (*patches.Error)(nil); !errors.As(err, &is) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `patch "the-patch"`) {
			t.Errorf("%s: the error is %v, want %q", c.path, err, c.want)
		}
		if diff := cmp.Diff(before, host); diff != "" {
			t.Errorf("%s: the host pod was changed:\n%s", c.path, diff)
		}
	}
}

func TestAValueThatNoLabelHasIsNoRefusalOfTheHost(t *testing.T) {
	host := pod(1)
	err := compile(t, patch("the-patch", "metadata.labels.team", `"a b"`)).Any(t.Context(), of(pod(1)), host)
	if is := (*patches.Error)(nil); !errors.As(err, &is) || !strings.Contains(err.Error(), `"a b" is no value of the label team`) || host.Labels["team"] != "" {
		t.Errorf("%v, %v", err, host.Labels)
	}
}

// L3: a tenant decides how many elements the lists of its pods have.
func TestHostilePodsMakePatchesCostLittle(t *testing.T) {
	source, host := pod(1), pod(100)
	source.Spec.Containers[0].Env = make([]corev1.EnvVar, 3000)
	for i := range host.Spec.Containers {
		host.Spec.Containers[i].Env = make([]corev1.EnvVar, 1000)
	}
	for _, expression := range []string{
		`object.spec.containers.all(c, c.env.all(e, e.name == "")) ? "a" : "b"`,
		`"` + strings.Repeat("x", 100) + `"`,
	} {
		err := compile(t, patch("each", "spec.containers[*].env[*].value", expression)).New(t.Context(), of(source), host)
		if is := (*patches.Error)(nil); !errors.As(err, &is) {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// A space that stops is no reason to tell a tenant that its pod can't be patched.
func TestTheEndOfASpaceIsNoRefusal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := compile(t, patch("a", "spec.containers[*].image", "[1, 2].map(i, value)[0]")).Any(ctx, of(pod(1)), pod(1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
