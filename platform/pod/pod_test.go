// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/translate"
)

// N4: the names of two spaces' objects differ, and are short enough for what the host adds in labels of pods.
func TestNamesOfPodsAreShortAndNoTwoSpacesHaveTheSame(t *testing.T) {
	space := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`[a-z](-?-?-?[a-z0-9]){0,18}`).Draw(t, "start") + rapid.SampledFrom([]string{"", strings.Repeat("x", 30), "--a", "---a"}).Draw(t, "end")
	}).Filter(func(s string) bool { return len(s) <= translate.MaxSpaceName })
	rapid.Check(t, func(t *rapid.T) {
		a, b := space.Draw(t, "a"), space.Draw(t, "b")
		name := pod.Name(a)
		if problems := validation.IsDNS1123Label(name + "-0"); len(problems) > 0 || len(validation.IsValidLabelValue(name+"-0123456789")) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if a != b && name == pod.Name(b) {
			t.Errorf("%s and %s are both %s", a, b, name)
		}
		if !strings.HasPrefix(name, "berth-") {
			t.Errorf("%s is not what the chart's policy allows", name)
		}
	})
}

func TestATemplateThatIsNoneIsRefused(t *testing.T) {
	for says, text := range map[string]string{
		"unknown field":                `{metadata: {namespace: a}, specs: {}}`,
		"metadata.namespace":           `{spec: {template: {spec: {containers: [{name: a}], volumes: [{name: configuration, secret: {}}]}}}}`,
		"containers: must have one":    `{metadata: {namespace: a}, spec: {template: {spec: {volumes: [{name: configuration, secret: {}}]}}}}`,
		"there is none named configur": `{metadata: {namespace: a}, spec: {template: {spec: {containers: [{name: a}], volumes: [{name: configuration, emptyDir: {}}]}}}}`,
	} {
		file := filepath.Join(t.TempDir(), "template.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pod.ReadTemplate(file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// T9: an upgrade with another volume reaches the pod of a running space with all else that is new, and never makes it
// unreachable.
func TestAnUpgradeWithAnotherVolumeReachesThePod(t *testing.T) {
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	host, err := client.New(cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	template := func(image, size string) *appsv1.StatefulSet {
		set := &appsv1.StatefulSet{}
		set.Namespace = "default"
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "berth", Image: image}}
		claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
		return set
	}
	pods := &pod.Pods{Host: host, Platform: "berth", Template: template("old", "1Gi")}
	claims := pods.Template.Spec.VolumeClaimTemplates
	before, err := pods.Apply(t.Context(), "upgraded", nil, "a", claims)
	if err != nil {
		t.Fatal(err)
	}
	pods.Template = template("new", "2Gi")
	if at, err := pods.Apply(t.Context(), "upgraded", nil, "b", claims); err != nil || at != before {
		t.Errorf("with the claims of before: reached at %v, before at %v (%v)", at, before, err)
	}
	set := &appsv1.StatefulSet{}
	if err := host.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: pod.Name("upgraded")}, set); err != nil {
		t.Fatal(err)
	}
	if image, size := set.Spec.Template.Spec.Containers[0].Image, set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); image != "new" || size != "1Gi" {
		t.Errorf("the pod has the image %s and a volume of %s", image, size)
	}
	at, err := pods.Apply(t.Context(), "upgraded", nil, "c", pods.Template.Spec.VolumeClaimTemplates)
	if !apierrors.IsInvalid(err) || at != before {
		t.Errorf("with other claims: reached at %v (%v)", at, err)
	}
	if left, err := pods.Remove(t.Context(), "upgraded"); err != nil {
		t.Errorf("%s is left (%v)", left, err)
	}
}

// D4, T9: the pod of a space with a store in a database server has an empty directory in place of a volume, so that any node can run it.
func TestAPodWithoutClaimsMayRunOnAnyNode(t *testing.T) {
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	host, err := client.New(cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	template := &appsv1.StatefulSet{}
	template.Namespace = "default"
	template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "berth", Image: "berth", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: pod.DataDir}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("256Mi")}},
	}}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	template.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
	pods := &pod.Pods{Host: host, Platform: "berth", Template: template}
	if _, err := pods.Apply(t.Context(), "remote", nil, "a", nil); err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{}
	if err := host.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: pod.Name("remote")}, set); err != nil {
		t.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	if len(set.Spec.VolumeClaimTemplates) > 0 || len(spec.Volumes) != 1 || spec.Volumes[0].Name != "data" || spec.Volumes[0].EmptyDir == nil ||
		spec.Volumes[0].EmptyDir.SizeLimit.String() != "2Gi" {
		t.Errorf("the claims are %v, and the volumes %v", set.Spec.VolumeClaimTemplates, spec.Volumes)
	}
	if limit := spec.Containers[0].Resources.Limits.StorageEphemeral().String(); limit != "2304Mi" {
		t.Errorf("the pod may use %s of its node, and the directory is larger", limit)
	}
	if limit := template.Spec.Template.Spec.Containers[0].Resources.Limits.StorageEphemeral().String(); limit != "256Mi" {
		t.Errorf("the template has the limit %s now", limit)
	}
	if left, err := pods.Remove(t.Context(), "remote"); err != nil {
		t.Errorf("%s is left (%v)", left, err)
	}
}

// D4, T9: a shard finds by which incarnation another one has managed a pod, without the right to read Secrets.
func TestTheIncarnationOfAPodIsFound(t *testing.T) {
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	host, err := client.New(cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	template := &appsv1.StatefulSet{}
	template.Namespace = "default"
	template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "berth", Image: "berth"}}
	pods := &pod.Pods{Host: host, Platform: "berth", Template: template}
	if _, err := pods.Apply(t.Context(), "found", map[string][]byte{"incarnation": []byte("random")}, "a", nil); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pods  *pod.Pods
		space string
		want  string
	}{
		"its own":            {pods, "found", "random"},
		"none":               {pods, "lost", ""},
		"another platform's": {&pod.Pods{Host: host, Platform: "other", Template: template}, "found", ""},
	} {
		if got, err := test.pods.Known(t.Context(), test.space, "incarnation"); err != nil || string(got) != test.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, test.want)
		}
	}
	if left, err := pods.Remove(t.Context(), "found"); err != nil {
		t.Errorf("%s is left (%v)", left, err)
	}
}
