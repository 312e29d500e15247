// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// ends fails for work that takes many times as long as it should: a product of two quantities that a tenant chooses.
func ends(t *testing.T, work func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // some hundred times what it takes
		t.Fatal("it does not end")
	}
}

// L3: what a pod's downward API tells is made once, not for each of the files that tell it.
func TestHostileDownwardFilesShareWhatTheyTell(t *testing.T) {
	v := sample.PlainPod()
	v.Annotations = map[string]string{}
	for i := range 100 {
		v.Annotations[fmt.Sprint("a", i)] = strings.Repeat("x", 2000)
	}
	files := &corev1.DownwardAPIVolumeSource{}
	for i := range 500 {
		files.Items = append(files.Items, corev1.DownwardAPIVolumeFile{Path: fmt.Sprint(i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	v.Spec.Volumes = append(v.Spec.Volumes, corev1.Volume{Name: "told", VolumeSource: corev1.VolumeSource{DownwardAPI: files}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if errs := pod.Check(&v.ObjectMeta, &v.Spec); len(errs) > 0 {
		t.Fatal(errs)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("to check a pod whose 500 files hold the same 200 KB takes %d MiB", took>>20)
	}
}

// L3: conditions that a tenant writes into the status of its pod are not compared with each other.
func TestHostileConditionsAreNotCompared(t *testing.T) {
	v, host := scheduledPod("kind-worker")
	const many = 200_000
	for i := range many {
		v.Status.Conditions = append(v.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(fmt.Sprintf("condition-%06d", i))})
	}
	v.Status.Conditions = append(v.Status.Conditions, v.Status.Conditions[0])
	ends(t, func() {
		if got := len(pod.PullStatus(sample.Demo(), v, host).Conditions); got != many {
			t.Errorf("got %d conditions, want %d, each once", got, many)
		}
	})
}

// L3: what a tenant's process says of its end is not searched for each name that its pod refers to.
func TestHostileNamesAreNotEachLookedForInMessages(t *testing.T) {
	v := sample.PlainPod()
	for i := range 20_000 {
		v.Spec.Containers[0].EnvFrom = append(v.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("c", i)}},
		})
	}
	host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	message := strings.Repeat("demo--default-", 100_000) + "demo--default--c19999"
	host.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v.Spec.Containers[0].Name, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: message},
	}}}
	ends(t, func() {
		got := pod.PullStatus(sample.Demo(), v, host).ContainerStatuses[0].State.Terminated.Message
		if want := strings.Repeat("demo--default-", 100_000) + "c19999"; got != want {
			t.Errorf("the message ends with %q", got[len(got)-40:])
		}
	})
}
