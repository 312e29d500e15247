// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/volume"
)

func handles() []volume.Handles {
	return []volume.Handles{{Driver: "disks.example", Prefix: "shop/"}, {Driver: "disks.example", Prefix: "shared-"}}
}

func tenants() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "u"}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		StorageClassName:              "manual",
		ClaimRef:                      &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "c"},
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: "shop/data"}},
	}}
}

// S1: an error names what could lead to another volume, or what nodes carry out.
func TestHostileVolumesOfTenantsAreRefused(t *testing.T) {
	if errs := volume.Check(tenants(), handles()); len(errs) > 0 {
		t.Fatal(errs)
	}
	secret := &corev1.SecretReference{Namespace: "kube-system", Name: "cloud"}
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeSpec)
		says   string
	}{
		"another space's":       {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "stock/data" }, `spec.csi.volumeHandle: Invalid value: "stock/data": the handles of this space begin with "shop/" or "shared-"`},
		"a longer space's":      {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "shop-2/data" }, "spec.csi.volumeHandle"},
		"a path upwards":        {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "shop/../stock/data" }, "spec.csi.volumeHandle"},
		"a path, encoded":       {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "shop/%2e%2e/stock" }, "spec.csi.volumeHandle"},
		"a query":               {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "shop/data?as=stock" }, "spec.csi.volumeHandle"},
		"a long one":            {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeHandle = "shop/" + strings.Repeat("a", 512) }, "spec.csi.volumeHandle"},
		"an unlisted driver":    {func(s *corev1.PersistentVolumeSpec) { s.CSI.Driver = "host.example" }, `spec.csi.driver: Unsupported value: "host.example": supported values: "disks.example"`},
		"attributes":            {func(s *corev1.PersistentVolumeSpec) { s.CSI.VolumeAttributes = map[string]string{"server": "nas"} }, "spec.csi.volumeAttributes"},
		"a file system":         {func(s *corev1.PersistentVolumeSpec) { s.CSI.FSType = "vfat" }, "spec.csi.fsType"},
		"a controller's secret": {func(s *corev1.PersistentVolumeSpec) { s.CSI.ControllerPublishSecretRef = secret }, "spec.csi.controllerPublishSecretRef"},
		"a node's secret":       {func(s *corev1.PersistentVolumeSpec) { s.CSI.NodeStageSecretRef = secret }, "spec.csi.nodeStageSecretRef"},
		"a mount's secret":      {func(s *corev1.PersistentVolumeSpec) { s.CSI.NodePublishSecretRef = secret }, "spec.csi.nodePublishSecretRef"},
		"a resizer's secret":    {func(s *corev1.PersistentVolumeSpec) { s.CSI.ControllerExpandSecretRef = secret }, "spec.csi.controllerExpandSecretRef"},
		"a secret on nodes":     {func(s *corev1.PersistentVolumeSpec) { s.CSI.NodeExpandSecretRef = secret }, "spec.csi.nodeExpandSecretRef"},
		"deleting the data": {func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}, "spec.persistentVolumeReclaimPolicy"},
		"mount options": {func(s *corev1.PersistentVolumeSpec) { s.MountOptions = []string{"suid"} }, "spec.mountOptions"},
		"nodes":         {func(s *corev1.PersistentVolumeSpec) { s.NodeAffinity = &corev1.VolumeNodeAffinity{} }, "spec.nodeAffinity"},
		"another class": {func(s *corev1.PersistentVolumeSpec) { s.VolumeAttributesClassName = ptr.To("gold") }, "spec.volumeAttributesClassName"},
		"the host's files": {func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "spec.csi"},
	} {
		t.Run(name, func(t *testing.T) {
			v := tenants()
			tc.change(&v.Spec)
			if errs := volume.Check(v, handles()); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), tc.says) {
				t.Errorf("got %v, want %q", errs, tc.says)
			}
		})
	}
}

// S1: as on any cluster, a claim and its volume match.
func TestAClaimAndItsVolumeMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolumeClaimSpec)
		says   string
	}{
		"alike":    {func(*corev1.PersistentVolumeClaimSpec) {}, ""},
		"another":  {func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = ptr.To("") }, "spec.storageClassName"},
		"a device": {func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }, "spec.volumeMode"},
		"many": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, "spec.accessModes"},
		"a copy": {func(s *corev1.PersistentVolumeClaimSpec) { s.DataSource = &corev1.TypedLocalObjectReference{} }, "spec.dataSourceRef"},
		"more": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("11Gi")}
		}, "spec.resources"},
		"no class is": {func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = nil }, "spec.storageClassName"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("manual"), VolumeName: "data", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			}}
			tc.change(&claim.Spec)
			errs := volume.CheckClaim(claim, tenants())
			if tc.says == "" && len(errs) > 0 || tc.says != "" && (len(errs) != 1 || errs[0].Field != tc.says) {
				t.Errorf("got %v, want %q", errs, tc.says)
			}
		})
	}
}

// S1, Q4: on the host, the volume is for one claim of the space, and the claim
// requests all of it.
func TestAVolumeIsForItsClaimOnly(t *testing.T) {
	s := translate.Space{Name: "shop"}
	v := tenants()
	v.Labels, v.Annotations = map[string]string{"app": "db"}, map[string]string{"pv.kubernetes.io/provisioned-by": "disks.example"}
	host := volume.ToHost(s, v)
	ref := host.Spec.ClaimRef
	if host.Name != "shop.data" || host.Namespace != "" || ref.Namespace != "berth-shop" || ref.Name != "shop--default--data" || ref.UID != "" ||
		host.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || host.Spec.StorageClassName != "" ||
		host.Labels["app"] != "" || host.Annotations["pv.kubernetes.io/provisioned-by"] != "" {
		t.Errorf("on the host it is %+v", host)
	}
	claim := &corev1.PersistentVolumeClaim{}
	volume.ForClaim(s, claim, "data", v.Spec.Capacity.Storage())
	if claim.Spec.VolumeName != "shop.data" || ptr.Deref(claim.Spec.StorageClassName, "none") != "" || claim.Spec.Resources.Requests.Storage().String() != "10Gi" {
		t.Errorf("the claim is %+v", claim.Spec)
	}

	have := host.DeepCopy()
	have.Labels[translate.LabelTenant], have.Spec.ClaimRef.UID, have.Status.Phase = "acme", "h", corev1.VolumeBound
	if volume.Push(host, have) {
		t.Errorf("what the host's binder and the platform write is taken back: %+v", have)
	}
	have.Spec.PersistentVolumeReclaimPolicy, have.Spec.ClaimRef.Name, have.Spec.StorageClassName = corev1.PersistentVolumeReclaimDelete, "other", "gold"
	if !volume.Push(host, have) || have.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || have.Spec.ClaimRef.Name != ref.Name || have.Spec.StorageClassName != "" {
		t.Errorf("a change on the host stays: %+v", have.Spec)
	}
	have.Spec.ClaimRef.UID, have.Status.Phase = "earlier", corev1.VolumeReleased
	if !volume.Push(host, have) || have.Spec.ClaimRef.UID != "" {
		t.Errorf("the next claim can't have it: %+v", have.Spec.ClaimRef)
	}
	if volume.NeedsRecreate(host, have) {
		t.Error("it is made again without a reason")
	}
	have.Spec.CSI.VolumeHandle = "stock/data"
	if !volume.NeedsRecreate(host, have) {
		t.Error("another handle stays")
	}
}
