// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/sample"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// tenantClaim is a claim of a stateful set's.
func tenantClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data-db-0", UID: "c-uid", Labels: map[string]string{"app": "db"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
		},
	}
}

// M4: what a tenant may not ask of the host with a claim.
func TestCheckClaimRefusesWhatReachesForTheHostsVolumes(t *testing.T) {
	snapshot := "snapshot.storage.k8s.io"
	cases := map[string]struct {
		reason string
		do     func(spec *corev1.PersistentVolumeClaimSpec)
		field  string // empty: passes
	}{
		"Plain":        {"the usual", func(*corev1.PersistentVolumeClaimSpec) {}, ""},
		"DefaultClass": {"the space's default", func(spec *corev1.PersistentVolumeClaimSpec) { spec.StorageClassName = nil }, ""},
		"NoClass": {
			"binds to any volume that the host's admin made by hand", func(spec *corev1.PersistentVolumeClaimSpec) { spec.StorageClassName = ptr.To("") }, "spec.storageClassName",
		},
		"VolumeName": {"chooses a volume of the host's", func(spec *corev1.PersistentVolumeClaimSpec) { spec.VolumeName = "pv-7" }, "spec.volumeName"},
		"Selector": {
			"chooses among volumes of the host's", func(spec *corev1.PersistentVolumeClaimSpec) { spec.Selector = &metav1.LabelSelector{} }, "spec.selector",
		},
		"AttributesClass": {
			"a class of the host's", func(spec *corev1.PersistentVolumeClaimSpec) { spec.VolumeAttributesClassName = ptr.To("gold") }, "spec.volumeAttributesClassName",
		},
		"Clone": {"a claim of its own namespace", func(spec *corev1.PersistentVolumeClaimSpec) {
			spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}
			spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}
		}, ""},
		"CloneOfOthers": {"a claim of another namespace", func(spec *corev1.PersistentVolumeClaimSpec) {
			spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "a", Namespace: ptr.To("other")}
		}, "spec.dataSourceRef"},
		"Snapshot": {"an object that is not synced", func(spec *corev1.PersistentVolumeClaimSpec) {
			spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &snapshot, Kind: "VolumeSnapshot", Name: "a"}
		}, "spec.dataSourceRef"},
		"SnapshotTheOldWay": {"an object that is not synced", func(spec *corev1.PersistentVolumeClaimSpec) {
			spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &snapshot, Kind: "VolumeSnapshot", Name: "a"}
		}, "spec.dataSource"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			claim := tenantClaim()
			tc.do(&claim.Spec)
			errs := translate.CheckClaim(&claim.Spec, false, false)
			if tc.field == "" && len(errs) > 0 {
				t.Errorf("%s: refused: %v", tc.reason, errs)
			}
			if tc.field != "" && (len(errs) != 1 || errs[0].Field != tc.field || errs[0].Detail == "") {
				t.Errorf("%s: want a refusal of %s, got %v", tc.reason, tc.field, errs)
			}
		})
	}
}

func TestAskedClaimLeavesOutWhatBerthWrote(t *testing.T) {
	v := tenantClaim()
	v.Spec.VolumeName = translate.VolumeName(v)
	if errs := translate.CheckClaim(translate.AskedClaim(v), false, false); len(errs) > 0 {
		t.Errorf("a bound claim is refused: %v", errs)
	}
	if v.Spec.VolumeName == "" {
		t.Error("AskedClaim changed its argument")
	}
}

// S1, S3: one claim, whole, as the host gets it; what CheckClaim refuses is not
// in it.
func TestClaimAsksTheHostForAVolumeOfItsClass(t *testing.T) {
	v := tenantClaim()
	v.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "kind-worker"}
	v.Spec.VolumeName, v.Spec.Selector, v.Spec.VolumeAttributesClassName = "pv-7", &metav1.LabelSelector{}, ptr.To("gold")
	v.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "a--b"}
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "berth-demo", Name: "demo--default--data-db-0",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default"},
			Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "data-db-0", "berth.dev/uid": "c-uid"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "demo--default--a--b"},
		},
	}
	host := sample.Demo().Claim(v)
	if diff := cmp.Diff(want, host); diff != "" {
		t.Errorf("host claim: -want +got:\n%s", diff)
	}
	sample.CheckNoSharedMemory(t, v, host)
	internal := &core.PersistentVolumeClaim{}
	if err := legacyscheme.Scheme.Convert(host, internal, nil); err != nil {
		t.Fatalf("convert claim: %v", err)
	}
	if errs := validation.ValidatePersistentVolumeClaim(internal, validation.ValidationOptionsForPersistentVolumeClaimCreate()); len(errs) > 0 {
		t.Errorf("the host refuses it: %v", errs.ToAggregate())
	}
	v.Spec.DataSourceRef.Namespace = ptr.To("other")
	if ref := sample.Demo().Claim(v).Spec.DataSourceRef; ref != nil {
		t.Errorf("a foreign data source goes down: %v", ref)
	}
}

func TestPushClaimResizesAndNothingElse(t *testing.T) {
	v := tenantClaim()
	have := sample.Demo().Claim(v)
	have.Spec.VolumeName = "pv-7"
	have.Annotations["volume.kubernetes.io/selected-node"] = "kind-worker"
	stored := have.DeepCopy()
	if translate.PushClaim(sample.Demo().Claim(v), have) {
		t.Error("a push onto a bound claim reports a change")
	}
	v.Spec.Resources.Requests = storage("2Gi")
	v.Spec.StorageClassName = ptr.To("slow")
	want := sample.Demo().Claim(v)
	stored.Spec.Resources.Requests = storage("2Gi")
	if !translate.PushClaim(want, have) {
		t.Error("a new size is not pushed")
	}
	if diff := cmp.Diff(stored, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if translate.PushClaim(want, have) {
		t.Error("a second push reports a change")
	}
}

// boundVolume is a volume of the host's, every string of which tells something
// of it.
func boundVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-secret", UID: "secret-uid", Labels: map[string]string{"topology.kubernetes.io/zone": "secret-zone"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "secret.csi"}, Finalizers: []string{"secret.csi/protect"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "secret-class", MountOptions: []string{"secret-option"},
			VolumeAttributesClassName: ptr.To("secret-attributes"), ClaimRef: &corev1.ObjectReference{Namespace: "berth-demo", Name: "secret-claim", UID: "secret-claim-uid"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "secret.csi", VolumeHandle: "secret-handle", VolumeAttributes: map[string]string{"server": "secret-server"},
				NodeStageSecretRef: &corev1.SecretReference{Namespace: "secret", Name: "secret"},
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{"secret-node"}}},
			}}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound, Message: "secret", Reason: "secret"},
	}
}

// N1: a volume, whole, as the space sees it: neither where nor what it is.
func TestVolumeTellsSizeAndModesOnly(t *testing.T) {
	v, host := tenantClaim(), boundVolume()
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-c-uid", Labels: map[string]string{"app.kubernetes.io/managed-by": "berth"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "volumes.berth.dev"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "volumes.berth.dev", VolumeHandle: "pvc-c-uid"}},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data-db-0", UID: "c-uid"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	got := translate.Volume(v, host)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("volume: -want +got:\n%s", diff)
	}
	sample.CheckSilent(t, got, "secret")
	sample.CheckNoSharedMemory(t, host, got)
	sample.CheckNoSharedMemory(t, v, got)
	internal := &core.PersistentVolume{}
	if err := legacyscheme.Scheme.Convert(got, internal, nil); err != nil {
		t.Fatalf("convert volume: %v", err)
	}
	if errs := validation.ValidatePersistentVolume(internal, validation.ValidationOptionsForPersistentVolume(internal, nil)); len(errs) > 0 {
		t.Errorf("a space refuses it: %v", errs.ToAggregate())
	}
}

// N1: as above, for whatever a driver or an admin has put into a volume.
func TestAnyVolumeIsSilent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := &corev1.PersistentVolume{}
		sample.Fill(t, reflect.ValueOf(&host.Spec).Elem(), 8)
		host.Spec.Capacity, host.Spec.AccessModes, host.Spec.VolumeMode, host.Spec.PersistentVolumeReclaimPolicy = nil, nil, nil, ""
		got := translate.Volume(tenantClaim(), host)
		if diff := cmp.Diff(translate.Volume(tenantClaim(), &corev1.PersistentVolume{}), got); diff != "" {
			t.Fatalf("it tells of the host's: -nothing +told:\n%s", diff)
		}
	})
}

func TestPullVolumeUndoesWhatTheTenantChanged(t *testing.T) {
	want := translate.Volume(tenantClaim(), boundVolume())
	have := want.DeepCopy()
	have.Spec.ClaimRef.ResourceVersion = "99" // as a binder writes it
	if translate.PullVolume(want, have) {
		t.Error("a pull onto an equal volume reports a change")
	}
	have.Spec.PersistentVolumeReclaimPolicy, have.Spec.Capacity = corev1.PersistentVolumeReclaimRetain, storage("9Ti")
	if !translate.PullVolume(want, have) || have.Spec.ClaimRef.ResourceVersion != "99" {
		t.Errorf("not pulled: %v", have.Spec)
	}
	have.Spec.ClaimRef = nil
	if !translate.PullVolume(want, have) || have.Spec.ClaimRef == nil {
		t.Error("a lost claim is not pulled")
	}
	if translate.PullVolume(want, have) {
		t.Error("a second pull reports a change")
	}
}

// S2, N1: a claim is bound in the space as it is on the host, without a driver's
// words or the host volume's name.
func TestPullClaimIsBoundAsTheHostsIs(t *testing.T) {
	cases := map[string]struct {
		reason string
		phase  corev1.PersistentVolumeClaimPhase
		volume string
	}{
		"Pending": {"no volume yet", corev1.ClaimPending, ""},
		"Bound":   {"the space's own name of the volume", corev1.ClaimBound, "pvc-c-uid"},
		"Lost":    {"a volume that is gone", corev1.ClaimLost, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := tenantClaim()
			host := sample.Demo().Claim(v)
			host.Spec.VolumeName = "pvc-secret"
			host.Annotations["volume.kubernetes.io/selected-node"] = "secret-node"
			host.Status = corev1.PersistentVolumeClaimStatus{
				Phase: tc.phase, Capacity: storage("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				AllocatedResources: storage("3Gi"), CurrentVolumeAttributesClassName: ptr.To("secret"),
				AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
				ModifyVolumeStatus:        &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "secret"},
				Conditions:                []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue, Message: "rpc error: secret"}},
			}
			got := translate.PullClaim(v, host)
			want := corev1.PersistentVolumeClaimStatus{
				Phase: tc.phase, Capacity: storage("2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, AllocatedResources: storage("3Gi"),
				AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
				Conditions:                []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimResizing, Status: corev1.ConditionTrue}},
			}
			if diff := cmp.Diff(want, got.Status); diff != "" {
				t.Errorf("%s: status: -want +got:\n%s", tc.reason, diff)
			}
			if got.Spec.VolumeName != tc.volume || (got.Annotations["pv.kubernetes.io/bind-completed"] == "yes") != (tc.volume != "") {
				t.Errorf("%s: volume %q, annotations %v", tc.reason, got.Spec.VolumeName, got.Annotations)
			}
			sample.CheckSilent(t, got, "secret")
			sample.CheckNoSharedMemory(t, host, got)
			sample.CheckNoSharedMemory(t, v, got)
			if diff := cmp.Diff(got, translate.PullClaim(got, host)); diff != "" {
				t.Errorf("a second pull differs: -first +second:\n%s", diff)
			}
		})
	}
}

// S2, N1: a class by its name and behaviour; what it is made of is the host's.
func TestStorageClassTellsWhatItDoes(t *testing.T) {
	host := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fast", UID: "secret", Labels: map[string]string{"secret": "secret"},
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true", "secret": "secret"},
		},
		Provisioner: "secret.csi", Parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "secret"}, MountOptions: []string{"secret"},
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), AllowVolumeExpansion: ptr.To(true), VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"secret"}}}}},
	}
	want := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fast", Labels: map[string]string{"app.kubernetes.io/managed-by": "berth"}, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "volumes.berth.dev", ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: ptr.To(true), VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	got := translate.StorageClass(host)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("class: -want +got:\n%s", diff)
	}
	sample.CheckSilent(t, got, "secret")
	sample.CheckNoSharedMemory(t, host, got)
}

func TestPullStorageClassTellsChangesFromRecreation(t *testing.T) {
	base := func() *storagev1.StorageClass {
		return translate.StorageClass(&storagev1.StorageClass{
			ObjectMeta:    metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), AllowVolumeExpansion: ptr.To(true),
		})
	}
	cases := map[string]struct {
		reason            string
		do                func(have *storagev1.StorageClass)
		changed, recreate bool
	}{
		"Same":      {"no write for nothing", func(*storagev1.StorageClass) {}, false, false},
		"Expansion": {"may change in place", func(have *storagev1.StorageClass) { have.AllowVolumeExpansion = nil }, true, false},
		"Default":   {"an annotation", func(have *storagev1.StorageClass) { have.Annotations = nil }, true, false},
		"Label":     {"by which Berth knows its own", func(have *storagev1.StorageClass) { have.Labels = nil }, true, false},
		"Policy":    {"is immutable", func(have *storagev1.StorageClass) { have.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain) }, false, true},
		"Tenants":   {"a class that the tenant made", func(have *storagev1.StorageClass) { have.Provisioner = "example.com/own" }, false, true},
		"Parameters": {
			"are immutable, and never the host's", func(have *storagev1.StorageClass) { have.Parameters = map[string]string{"a": "b"} }, false, true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want, have := base(), base()
			tc.do(have)
			changed, recreate := translate.PullStorageClass(want, have)
			if changed != tc.changed || recreate != tc.recreate {
				t.Errorf("%s: changed %v, recreate %v", tc.reason, changed, recreate)
			}
			if recreate {
				return
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if changed, _ := translate.PullStorageClass(want, have); changed {
				t.Errorf("%s: a second pull reports a change", tc.reason)
			}
		})
	}
	// A class that is no default any more.
	want, have := translate.StorageClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}), base()
	have.ReclaimPolicy, have.AllowVolumeExpansion = nil, nil
	if changed, _ := translate.PullStorageClass(want, have); !changed || have.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
		t.Errorf("it stays the default: %v", have.Annotations)
	}
	if changed, _ := translate.PullStorageClass(want, have); changed {
		t.Error("a second pull reports a change")
	}
}

// As upstream's admission has it: of several default classes the latest counts.
func TestTheLatestDefaultStorageClassCounts(t *testing.T) {
	class := func(name string, made int64) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(made, 0)}}
	}
	for name, tc := range map[string]struct {
		a, b *storagev1.StorageClass
		want bool
	}{
		"Later":   {class("b", 2), class("a", 1), true},
		"Earlier": {class("a", 1), class("b", 2), false},
		"Equal":   {class("a", 1), class("b", 1), true},
		"Name":    {class("b", 1), class("a", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := translate.NewerClass(tc.a, tc.b); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
