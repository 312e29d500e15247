// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// ownDisks are the volumes that all spaces of these tests may have on the host.
const (
	disks    = "disks.example.com"
	ownDisks = disks + "={space}/"
)

func ownVolume(name, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: disks, VolumeHandle: handle}},
	}}
}

// claimOf is a claim that names a volume of the tenant's own.
func claimOf(name, volume string) *corev1.PersistentVolumeClaim {
	claim := newClaimOf(name, "")
	claim.Spec.VolumeName = volume
	return claim
}

func inPhase(phase corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) error {
	return func(v *corev1.PersistentVolume) error {
		if v.Status.Phase != phase {
			return errors.New("it is " + string(v.Status.Phase))
		}
		return nil
	}
}

func claimBound(c *corev1.PersistentVolumeClaim) error {
	if c.Status.Phase != corev1.ClaimBound {
		return errors.New("it is " + string(c.Status.Phase))
	}
	return nil
}

// S1: a volume that the tenant creates is on the host while a claim of the space
// has it, for this claim only, and counts with all its capacity. It leaves no trace
// there, other than its data, and the next claim can have it.
func TestATenantsVolumeIsBoundToItsOwnClaim(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "disk")
	volumes, claims := env.virtual.CoreV1().PersistentVolumes(), env.virtual.CoreV1().PersistentVolumeClaims("default")
	theirs, theirClaims := env.host.CoreV1().PersistentVolumes(), env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace())
	must(t, claims.Create, claimOf("data", "archive")) // before the volume: the order doesn't matter
	env.awaitWarning(t, "PersistentVolumeClaim", "data", "spec.volumeName", `"archive" does not exist`)
	must(t, volumes.Create, ownVolume("archive", "disk/archive"))

	claim := awaited(t, "see the claim bound", claims.Get, "data", claimBound)
	volume := awaited(t, "see the volume bound", volumes.Get, "archive", inPhase(corev1.VolumeBound))
	if claim.Spec.VolumeName != "archive" || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID || claim.Status.Capacity.Storage().String() != "2Gi" {
		t.Errorf("the claim has volume %q of %v, the volume is for %v", claim.Spec.VolumeName, claim.Status.Capacity, volume.Spec.ClaimRef)
	}
	host := awaited(t, "see it on the host", theirs.Get, "disk.archive", inPhase(corev1.VolumeBound))
	ref := host.Spec.ClaimRef
	if ref.Namespace != env.space.HostNamespace() || ref.Name != env.hostName("data") || host.Spec.CSI.VolumeHandle != "disk/archive" ||
		host.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || host.OwnerReferences[0].Name != env.space.HostNamespace() {
		t.Errorf("on the host it is %+v", host)
	}
	hostClaim := awaited(t, "see the claim on the host", theirClaims.Get, env.hostName("data"), nil)
	if hostClaim.Spec.VolumeName != "disk.archive" || ptr.Deref(hostClaim.Spec.StorageClassName, "none") != "" || hostClaim.Spec.Resources.Requests.Storage().String() != "2Gi" {
		t.Errorf("the host's claim is %+v", hostClaim.Spec)
	}
	// What the tenant still may do to its claim.
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	if _, err := claims.Patch(t.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("the claim can't be labeled: %v", err)
	}

	must(t, claims.Create, claimOf("second", "archive"))
	env.awaitWarning(t, "PersistentVolumeClaim", "second", "bound to the claim default/data")

	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see it leave the host", theirs.Get, "disk.archive")
	awaited(t, "see it released", volumes.Get, "archive", inPhase(corev1.VolumeReleased))
	if _, err := volumes.Patch(t.Context(), "archive", types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see the next claim have it", claims.Get, "second", claimBound)
	host = awaited(t, "see it on the host again", theirs.Get, "disk.archive", inPhase(corev1.VolumeBound))
	if host.Spec.ClaimRef.Name != env.hostName("second") {
		t.Errorf("on the host it is for %v", host.Spec.ClaimRef)
	}
}

// S1, M4: no volume leads to data that is not the space's, and a claim that names
// such a volume says why it has none.
func TestHostileVolumesStayInTheSpace(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "thief")
	volumes, claims := env.virtual.CoreV1().PersistentVolumes(), env.virtual.CoreV1().PersistentVolumeClaims("default")
	for name, tc := range map[string]struct {
		change func(*corev1.PersistentVolume)
		says   string
	}{
		"theirs":    {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "victim/data" }, "spec.csi.volumeHandle"},
		"longer":    {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "thief-2/data" }, "spec.csi.volumeHandle"},
		"upwards":   {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "thief/../victim/data" }, "spec.csi.volumeHandle"},
		"driver":    {func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "other.example.com" }, "spec.csi.driver"},
		"attribute": {func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeAttributes = map[string]string{"share": "victim"} }, "spec.csi.volumeAttributes"},
		"secret": {func(v *corev1.PersistentVolume) {
			v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "cloud"}
		}, "spec.csi.nodeStageSecretRef"},
		"deleted": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}, "spec.persistentVolumeReclaimPolicy"},
		"files": {func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "spec.csi"},
	} {
		v := ownVolume(name, "thief/data")
		tc.change(v)
		must(t, volumes.Create, v)
		must(t, claims.Create, claimOf(name, name))
		env.awaitWarning(t, "PersistentVolumeClaim", name, "spec.volumeName", tc.says)
		for what, err := range map[string]error{
			"volume": gone(env.host.CoreV1().PersistentVolumes().Get(t.Context(), "thief."+name, metav1.GetOptions{})),
			"claim":  gone(env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), env.hostName(name), metav1.GetOptions{})),
		} {
			if err != nil {
				t.Errorf("%s, its %s: %v", name, what, err)
			}
		}
	}
}

// S1, M4: a volume of the host's own that has the name of a tenant's is not bound to
// the tenant's claim, nor is one of another space.
func TestAVolumeOfTheHostsIsNotTakenForOnesOwn(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "namesake")
	theirs := env.host.CoreV1().PersistentVolumes()
	foreign := ownVolume("namesake.data", "host/secret")
	must(t, theirs.Create, foreign)
	t.Cleanup(func() { _ = theirs.Delete(context.Background(), foreign.Name, metav1.DeleteOptions{}) })
	must(t, env.virtual.CoreV1().PersistentVolumes().Create, ownVolume("data", "namesake/data"))
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, claimOf("data", "data"))
	env.awaitWarning(t, "PersistentVolume", "data", "another object", "data")
	if err := gone(env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), env.hostName("data"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
	if v, err := theirs.Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || v.Spec.ClaimRef != nil {
		t.Errorf("the host's volume is for %v: %v", v.Spec.ClaimRef, err)
	}
}

// Q4: the tenant's own volumes on the host are bounded, because no quota of the host
// counts what is in no namespace.
func TestATenantsVolumesAreBounded(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "many-disks")
	env.limits = bounds.NewAccount(bounds.Limits{bounds.ExportedVolumes: 2})
	env.syncing(t, exported()...)
	env.guard(t)
	testhost.Eventually(t, "be let by the host", func(ctx context.Context) error {
		v := ownVolume("many-disks.x", "many-disks/x")
		v.Labels = map[string]string{translate.LabelSpace: "many-disks"}
		v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "berth-many-disks", Name: "many-disks--default--x"}
		_, err := env.account(t).CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	for i := range 3 {
		name := fmt.Sprintf("v%d", i)
		must(t, env.virtual.CoreV1().PersistentVolumes().Create, ownVolume(name, "many-disks/"+name))
		must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, claimOf(name, name))
	}
	onHost := func(ctx context.Context) (names []string) {
		all, err := env.host.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{LabelSelector: translate.LabelSpace + "=many-disks"})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all.Items {
			names = append(names, v.Name)
		}
		return names
	}
	warned := ""
	testhost.Eventually(t, "see one refused", func(ctx context.Context) error {
		events, err := env.virtual.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "PersistentVolume" && e.Reason == "SpaceForbids" {
				warned = e.Message
				return nil
			}
		}
		return errors.New("no event says so")
	})
	testhost.Eventually(t, "see the others on the host", func(ctx context.Context) error { // which may take longer than the refusal
		if names := onHost(ctx); len(names) != 2 {
			return fmt.Errorf("on the host are %v, after the event %q", names, warned)
		}
		return nil
	})
}

// M4: who holds a space's account reaches no other volume of the host.
func TestTheHostProtectsVolumesFromASpacesAccount(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "keeper")
	account := env.account(t)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	made := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := ownVolume("keeper.x", "keeper/x")
		v.Labels = map[string]string{translate.LabelSpace: "keeper"}
		v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "berth-keeper", Name: "keeper--default--x"}
		change(v)
		return v
	}
	create := func(change func(*corev1.PersistentVolume)) error {
		_, err := account.CoreV1().PersistentVolumes().Create(t.Context(), made(change), dry)
		return err
	}
	testhost.Eventually(t, "be guarded", func(context.Context) error {
		if err := create(func(*corev1.PersistentVolume) {}); err != nil {
			return err
		}
		return refusedBy("berth-space-classes", create(func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "victim/x" }))
	})
	victim := ownVolume("pvc-of-a-victim", "victim/x")
	victim.Labels = map[string]string{translate.LabelSpace: "keeper"} // as if it were for the space
	victim = must(t, env.host.CoreV1().PersistentVolumes().Create, victim)
	t.Cleanup(func() {
		_ = env.host.CoreV1().PersistentVolumes().Delete(context.Background(), victim.Name, metav1.DeleteOptions{})
	})
	taken := victim.DeepCopy()
	taken.ResourceVersion = "" // others write to it, too
	taken.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "berth-keeper", Name: "keeper--default--x"}
	for name, err := range map[string]error{
		"for everybody":     create(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }),
		"for another space": create(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "berth-victim" }),
		"deleting data": create(func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}),
		"with attributes": create(func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeAttributes = map[string]string{"a": "b"} }),
		"on a node":       create(func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"suid"} }),
		"another name":    create(func(v *corev1.PersistentVolume) { v.Name = "victim.x" }),
		"taking a volume": func() error {
			_, err := account.CoreV1().PersistentVolumes().Update(t.Context(), taken, metav1.UpdateOptions{DryRun: dry.DryRun})
			return err
		}(),
		"deleting one": account.CoreV1().PersistentVolumes().Delete(t.Context(), victim.Name, metav1.DeleteOptions{DryRun: dry.DryRun}),
		"a file of the nodes": create(func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}),
	} {
		if err := refusedBy("berth-space-classes", err); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
