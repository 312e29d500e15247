// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func TestVolumeNameIsValidAndBeginsAsItsClaims(t *testing.T) {
	label := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		claimName := strings.Join(rapid.SliceOfN(label, 1, 8).Draw(t, "labels"), ".")
		if len(claimName) > validation.DNS1123SubdomainMaxLength {
			claimName = strings.TrimRight(claimName[:validation.DNS1123SubdomainMaxLength], "-.")
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: claimName, UID: "0a1b2c3d-0000-4000-8000-000000000000",
		}}
		name := volumeName(claim)
		if wrong := validation.IsDNS1123Subdomain(name); wrong != nil {
			t.Fatalf("%q: %v", name, wrong)
		}
		base, ok := strings.CutSuffix(name, "-0a1b2c3d")
		if !ok || !strings.HasPrefix(claimName, base) || len(claimName) <= 244 && base != claimName {
			t.Fatalf("%q is not of %q", name, claimName)
		}
	})
}

func TestVolumeGoesWhereTheSchedulerPutsThePod(t *testing.T) {
	nodes := newNodes(3)
	waiting := storageClass()
	immediate := &storagev1.StorageClass{}
	selected := map[string]string{"volume.kubernetes.io/selected-node": "host-node-2"}
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		class       *storagev1.StorageClass
		want        []string
	}{
		"Selected":          {"the scheduler has selected a node", selected, waiting, []string{"host-node-2"}},
		"NotYet":            {"no pod uses the claim so far", nil, waiting, []string{""}},
		"Immediate":         {"the class binds at once, so any node will do", nil, immediate, []string{"host-node-1", "host-node-2", "host-node-3"}},
		"ImmediateSelected": {"a selection holds whatever the class says", selected, immediate, []string{"host-node-2"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: c.annotations}}
			got := volumeNode(claim, c.class, nodes)
			for _, want := range c.want {
				if got == want {
					return
				}
			}
			t.Errorf("volumeNode() = %q, want one of %q: %s", got, c.want, c.reason)
		})
	}
}

func TestVolumeIsThatClaimsOnly(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo", Name: "demo--default--data-web-0", UID: types.UID("12345678-rest")},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  ptr.To(corev1.PersistentVolumeBlock),
		},
	}
	class := storageClass()
	class.MountOptions = []string{"noatime"}
	volume := newVolume(claim, class, "host-node-2")
	if volume.Name != "demo--default--data-web-0-12345678" {
		t.Errorf("name %q", volume.Name)
	}
	if ref := volume.Spec.ClaimRef; ref.UID != claim.UID || ref.Name != claim.Name || ref.Namespace != claim.Namespace {
		t.Errorf("claimRef %v", ref)
	}
	if *volume.Spec.VolumeMode != corev1.PersistentVolumeBlock || volume.Spec.MountOptions[0] != "noatime" ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.Spec.HostPath != nil {
		t.Errorf("spec %v", volume.Spec)
	}
	terms := volume.Spec.NodeAffinity.Required.NodeSelectorTerms
	if len(terms) != 1 || terms[0].MatchExpressions[0].Values[0] != "host-node-2" {
		t.Errorf("node affinity %v", terms)
	}
}

func TestOnlyOwnReleasedVolumesAreDeleted(t *testing.T) {
	released := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		volume := newVolume(&corev1.PersistentVolumeClaim{}, storageClass(), "host-node-1")
		volume.Status.Phase = corev1.VolumeReleased
		change(volume)
		return volume
	}
	cases := map[string]struct {
		reason string
		volume *corev1.PersistentVolume
		want   bool
	}{
		"Released": {"its claim is gone", released(func(*corev1.PersistentVolume) {}), true},
		"Bound": {"its claim is there", released(func(v *corev1.PersistentVolume) {
			v.Status.Phase = corev1.VolumeBound
		}), false},
		"Retained": {"the policy was changed", released(func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}), false},
		"Foreign": {"another provisioner made it", released(func(v *corev1.PersistentVolume) {
			v.Annotations["pv.kubernetes.io/provisioned-by"] = "example.com/other"
		}), false},
		"Deleting": {"it is being deleted", released(func(v *corev1.PersistentVolume) {
			v.DeletionTimestamp = &metav1.Time{}
		}), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isReleased(c.volume); got != c.want {
				t.Errorf("isReleased() = %v, want %v: %s", got, c.want, c.reason)
			}
		})
	}
}
