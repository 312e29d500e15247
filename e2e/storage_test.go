// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const database = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: postgres, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// S1, S2, S3, N1, US.
func TestAStatefulSetGetsVolumesOfTheHost(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "storage")
	demo.apply(t, database, "-n", ns)
	demo.kubectl(t, "rollout", "status", "statefulset/db", "-n", ns, "--timeout=90s")

	for _, name := range []string{"data-db-0", "data-db-1"} {
		claim := await(t, demo.CoreV1().PersistentVolumeClaims(ns).Get, name, bound)
		volume := must(demo.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{}))(t)
		hostClaim := must(host.CoreV1().PersistentVolumeClaims(hostNamespace).Get(t.Context(), hostName(ns, name), metav1.GetOptions{}))(t)
		hostVolume := must(host.CoreV1().PersistentVolumes().Get(t.Context(), hostClaim.Spec.VolumeName, metav1.GetOptions{}))(t)

		await(t, host.CoreV1().PersistentVolumes().Get, hostVolume.Name, func(v *corev1.PersistentVolume) error {
			return expect("the label of the volume's space", v.Labels["berth.dev/space"], "demo")
		})
		if !strings.HasPrefix(hostVolume.Name, "demo--") {
			t.Errorf("host volume of %s is called %s, want it to begin with the space", name, hostVolume.Name)
		}
		if got, want := identityOf(hostClaim), (identity{"demo", ns, name, claim.UID}); got != want {
			t.Errorf("host claim records %v, want %v", got, want)
		}
		if volume.Status.Phase != corev1.VolumeBound || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
			t.Errorf("volume %s is %s for %v, want Bound for %s", volume.Name, volume.Status.Phase, volume.Spec.ClaimRef, claim.UID)
		}
		if got := claim.Status.Capacity.Storage().String(); got != "1Gi" {
			t.Errorf("claim %s has %s, want 1Gi", name, got)
		}
		if volume.Spec.Local != nil || volume.Spec.NodeAffinity != nil || hostVolume.Spec.NodeAffinity == nil {
			t.Errorf("volume %s tells of where it is: %+v", volume.Name, volume.Spec)
		}
	}
	if out := demo.kubectl(t, "get", "pvc", "-n", ns, "--no-headers"); strings.Count(out, "Bound") != 2 {
		t.Errorf("kubectl get pvc shows:\n%s", out)
	}

	checkClaimGoes(t, demo, host, ns)
}

// checkClaimGoes deletes a StatefulSet and one of its claims, and looks for
// what is left of the volume on both sides.
func checkClaimGoes(t *testing.T, demo, host *cluster, ns string) {
	t.Helper()
	demo.kubectl(t, "delete", "statefulset", "db", "-n", ns, "--wait")
	demo.awaitPods(t, ns, "app=db", 0)
	claim := must(demo.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-db-0", metav1.GetOptions{}))(t)
	hostClaim := must(host.CoreV1().PersistentVolumeClaims(hostNamespace).Get(t.Context(), hostName(ns, "data-db-0"), metav1.GetOptions{}))(t)

	demo.kubectl(t, "delete", "pvc", "data-db-0", "-n", ns, "--wait")

	awaitGone(t, "host claim", host.CoreV1().PersistentVolumeClaims(hostNamespace).Get, hostClaim.Name)
	awaitGone(t, "host volume", host.CoreV1().PersistentVolumes().Get, hostClaim.Spec.VolumeName)
	awaitGone(t, "volume", demo.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName)
	// As on any cluster, the other stays for the StatefulSet to come again.
	kept := must(demo.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data-db-1", metav1.GetOptions{}))(t)
	if err := bound(kept); err != nil {
		t.Error(err)
	}
}

func bound(claim *corev1.PersistentVolumeClaim) error {
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return fmt.Errorf("claim %s is %s, want it bound", claim.Name, claim.Status.Phase)
	}
	return nil
}

// S2, N1: the host's classes are there to be named, and theirs to say.
func TestStorageClassesAreTheHosts(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	const isDefault = "storageclass.kubernetes.io/is-default-class"
	class := await(t, demo.StorageV1().StorageClasses().Get, "standard", there)
	hostClass := must(host.StorageV1().StorageClasses().Get(t.Context(), "standard", metav1.GetOptions{}))(t)
	if class.Provisioner == hostClass.Provisioner || len(class.Parameters) > 0 {
		t.Errorf("class tells of the host's provisioner %q and parameters %v", class.Provisioner, class.Parameters)
	}
	if class.Annotations[isDefault] != "true" {
		t.Errorf("class is not the default, as on the host: %v", class.Annotations)
	}

	patch := `{"metadata":{"annotations":{"` + isDefault + `":"false"}},"allowVolumeExpansion":true}`
	if _, err := demo.StorageV1().StorageClasses().Patch(t.Context(), "standard", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		class, err := demo.StorageV1().StorageClasses().Get(t.Context(), "standard", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
			return errors.New("class lets volumes grow, as the tenant wrote")
		}
		return expect("whether it is the default", class.Annotations[isDefault], "true")
	})

	if err := demo.StorageV1().StorageClasses().Delete(t.Context(), "standard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := await(t, demo.StorageV1().StorageClasses().Get, "standard", there)
	if again.UID == class.UID {
		t.Error("the class was not deleted")
	}
}

// S2: a class that the host's admin adds is seen, and goes with the host's.
func TestStorageClassesFollowTheHosts(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	class := must(host.StorageV1().StorageClasses().Get(t.Context(), "standard", metav1.GetOptions{}))(t)
	fast := class.DeepCopy()
	fast.ObjectMeta = metav1.ObjectMeta{Name: "fast"}
	fast.Parameters = map[string]string{"pool": "of-the-host"}
	if _, err := host.StorageV1().StorageClasses().Create(t.Context(), fast, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := await(t, demo.StorageV1().StorageClasses().Get, "fast", there)
	if len(seen.Parameters) > 0 {
		t.Errorf("class shows the host's parameters %v", seen.Parameters)
	}
	if err := host.StorageV1().StorageClasses().Delete(t.Context(), "fast", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, "storage class", demo.StorageV1().StorageClasses().Get, "fast")
}

// S1, M4: a volume that a tenant writes is an object of its space, with a life of its own there: the host gets nothing of
// it, no claim of the space is bound to it, and it can be deleted.
func TestHostileVolumesStayInTheSpace(t *testing.T) {
	t.Parallel()
	b := sharedBerth(t)
	demo, host := b.demo(t), b.host(t)
	ns := demo.namespace(t, "own-volume")
	mine := must(demo.CoreV1().PersistentVolumes().Create(t.Context(), newVolume("mine"), metav1.CreateOptions{}))(t)
	claim := newClaim("data")
	claim.Spec.VolumeName = mine.Name
	_, err := demo.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
	refused(t, "claiming it", err, "spec.volumeName")
	// What is bound after it was written has been synced after it, too.
	if _, err := demo.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), newClaim("data"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.CoreV1().Pods(ns).Create(t.Context(), newPod("user", claiming("data")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := await(t, demo.CoreV1().PersistentVolumeClaims(ns).Get, "data", bound)
	if bound.Spec.VolumeName == mine.Name {
		t.Error("a claim is bound to the volume that its tenant wrote")
	}
	for _, v := range must(host.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		if strings.Contains(v.Name, mine.Name) || v.Spec.HostPath != nil {
			t.Errorf("the host has the volume %s: %+v", v.Name, v.Spec.PersistentVolumeSource)
		}
	}
	if err := demo.CoreV1().PersistentVolumes().Delete(t.Context(), mine.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, "volume", demo.CoreV1().PersistentVolumes().Get, mine.Name)
}

func newVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/etc"},
			},
		},
	}
}
