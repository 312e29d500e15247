// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate/volume"
)

func ownVolume(handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "u"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "v"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: handle, FSType: "ext4"}},
	}}
}

// S1: whoever holds the account of the space mine reaches, by a volume, no data but
// that of the handles that are the space's, and lets no other claim have it.
func TestHostileVolumesAreRefusedByThePolicies(t *testing.T) {
	parsed, err := resources.Parse([]string{"ownpersistentvolumes=disks.example={space}/+disks.example=any:shared-+files.example=nas#{space}#"})
	if err != nil {
		t.Fatal(err)
	}
	e := newEvaluator(t, hostpolicy.Policy{Validations: slices.Concat(hostpolicy.Classes(), hostpolicy.ClassFields(), []admissionv1.Validation{
		hostpolicy.Refuse("not allowed", hostpolicy.Volume(parsed.VolumeRules())),
	})}, nil)
	e.namespace = nil
	for name, tc := range map[string]struct {
		change  func(*corev1.PersistentVolume)
		refused bool
	}{
		"one's own":    {func(*corev1.PersistentVolume) {}, false},
		"a shared one": {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "shared-1" }, false},
		"another driver's": {func(v *corev1.PersistentVolume) {
			v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle = "files.example", "nas#mine#a"
		}, false},
		"another space's":         {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "theirs/data" }, true},
		"a longer name's":         {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "mine-2/data" }, true},
		"a shorter name's":        {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "min/data" }, true},
		"one above":               {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "mine/../theirs/data" }, true},
		"one above, encoded":      {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "mine/%2e%2e/theirs/data" }, true},
		"a line of its own":       {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "mine/data\ntheirs/data" }, true},
		"a handle without end":    {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "mine/" + strings.Repeat("a", 512) }, true},
		"the other driver's form": {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "nas#mine#a" }, true},
		"an unlisted driver":      {func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "host.example" }, true},
		"no driver": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, true},
		"an odd file system":      {func(v *corev1.PersistentVolume) { v.Spec.CSI.FSType = "vfat" }, true},
		"for everybody":           {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, true},
		"for another namespace":   {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "berth-theirs" }, true},
		"for the namespace's own": {func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Name = "data" }, true},
		"deleting the data": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}, true},
		"a class":        {func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "standard" }, true},
		"another name":   {func(v *corev1.PersistentVolume) { v.Name = "theirs.data" }, true},
		"another space":  {func(v *corev1.PersistentVolume) { v.Name, v.Labels["berth.dev/space"] = "theirs.data", "theirs" }, true},
		"no label":       {func(v *corev1.PersistentVolume) { v.Labels = nil }, true},
		"a finalizer":    {func(v *corev1.PersistentVolume) { v.Finalizers = []string{"theirs.example/stay"} }, true},
		"one of dynamic": {func(v *corev1.PersistentVolume) { v.Name = "pvc-0b5a" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := volume.ToHost(space(), ownVolume("mine/data"))
			tc.change(v)
			w := write{resource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, kind: "PersistentVolume", object: v}
			if message, _ := e.refuses(w); (message != "") != tc.refused {
				t.Errorf("created: refused for %q, want it refused: %t", message, tc.refused)
			}
			w.old = volume.ToHost(space(), ownVolume("mine/data"))
			if message, _ := e.refuses(w); (message != "") != tc.refused {
				t.Errorf("changed: refused for %q, want it refused: %t", message, tc.refused)
			}
		})
	}
	theirs := volume.ToHost(space(), ownVolume("mine/data"))
	theirs.Name, theirs.Labels = "pvc-0b5a", map[string]string{"berth.dev/space": "mine"} // as the platform labels it
	if message, _ := e.refuses(write{resource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, kind: "PersistentVolume", old: theirs}); message == "" {
		t.Error("the account may delete a volume that the host has provisioned")
	}
}
