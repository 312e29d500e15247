// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // defaults and conversions
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// validatePod is what an API server makes of a pod that is created: defaults,
// then upstream's validation. The pod gets the defaults.
func validatePod(t interface{ Fatalf(string, ...any) }, pod *corev1.Pod) field.ErrorList {
	legacyscheme.Scheme.Default(pod)
	internal := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		t.Fatalf("convert pod: %v", err)
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	opts.ResourceIsPod = true
	return validation.ValidatePodCreate(internal, opts)
}

// S1: what a space admits, the host does not refuse for its form.
func TestAPodThatASpaceAdmitsIsValidOnTheHost(t *testing.T) {
	var drawn, admitted atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		drawn.Add(1)
		v := sample.TenantPod(t)
		if len(validatePod(t, v)) > 0 || len(pod.Check(&v.ObjectMeta, &v.Spec)) > 0 {
			return
		}
		admitted.Add(1)
		space := sample.Demo()
		space.Nameservers = sample.Of(t, "nameservers", nil, []string{"10.1.0.10"}, []string{"10.1.0.10", "fd00::10"})
		host := pod.ToHost(space, v, sample.AnySurroundings(t, v.Namespace))
		if errs := validatePod(t, host); len(errs) > 0 {
			t.Fatalf("the host refuses it: %v", errs.ToAggregate())
		}
	})
	if drawn, admitted := drawn.Load(), admitted.Load(); !t.Failed() && admitted*3 < drawn {
		t.Errorf("only %d of %d drawn pods were admitted: the test proves little", admitted, drawn)
	}
}

// An annotation may be as large as the host takes; the copies that the downward
// API needs come on top. Better refused with the field than never created.
func TestADownwardAPITooLargeForTheHostIsRefused(t *testing.T) {
	noted := func(size int) *corev1.Pod {
		pod := sample.PlainPod()
		pod.Annotations = map[string]string{"note": strings.Repeat(`"`, size)}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "a", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}},
		}}})
		return pod
	}
	small, large := noted(100<<10), noted(200<<10)
	for _, v := range []*corev1.Pod{small, large} {
		if errs := validatePod(t, v); len(errs) > 0 {
			t.Fatalf("a space would refuse it already: %v", errs)
		}
	}
	if errs := pod.Check(&small.ObjectMeta, &small.Spec); len(errs) > 0 {
		t.Errorf("100 KiB are refused: %v", errs)
	}
	if errs := validatePod(t, pod.ToHost(sample.Demo(), small, sample.Surroundings{})); len(errs) > 0 {
		t.Errorf("the host refuses 100 KiB: %v", errs)
	}
	errs := pod.Check(&large.ObjectMeta, &large.Spec)
	if len(errs) != 1 || errs[0].Field != "metadata.annotations" {
		t.Errorf("200 KiB, 400 KiB as written to the host: %v", errs)
	}
}
