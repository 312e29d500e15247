// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// keeping is a claim, of what is said of its source, and a pod that adds a word to a file of it.
	keeping = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  storageClassName: volumes
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
  %[4]s
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %[2]s, args: [append, /data/words, %[3]s, --, cat, /data/words, --, sleep], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: %[1]s}}]
`
	snapshot = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: before}
spec: {volumeSnapshotClassName: volumes, source: {persistentVolumeClaimName: data}}
`
)

// provideVolumes gives the host a CSI driver with snapshots: upstream's sidecars,
// its snapshot controller and definitions, of the releases that hack/drivers
// names, until the test ends.
func provideVolumes(t *testing.T, host *cluster) {
	t.Helper()
	definitions := moduleOf(t, "drivers", "github.com/kubernetes-csi/external-snapshotter/client/v8") + "/config/crd"
	t.Cleanup(func() { host.kubectlAfter(t, "", "delete", "--ignore-not-found", "-k", definitions) })
	host.kubectl(t, "apply", "--server-side", "-k", definitions)
	host.awaitCRD(t, "volumesnapshots.snapshot.storage.k8s.io")
	host.awaitCRD(t, "volumesnapshotclasses.snapshot.storage.k8s.io")
	install(t, host, "volumes")
}

// keeps returns once the pod of a claim has read these words of its volume.
func (d *controllersTest) keeps(t *testing.T, name, words, source string) {
	t.Helper()
	lines := strings.Fields(words)
	d.a.apply(t, fmt.Sprintf(keeping, name, d.tool, lines[len(lines)-1], source))
	d.a.awaitRunning(t, "default", name)
	eventually(t, func() error {
		out, err := d.a.tryKubectl(t, "", "logs", name)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return expect("what is on the volume", strings.Join(strings.Fields(out), " "), words)
	})
}

func (d *controllersTest) snapshots(t *testing.T) {
	await(t, d.a.StorageV1().StorageClasses().Get, "volumes", there)
	d.a.says(t, "volumesnapshotclass/volumes", "{.driver} {.deletionPolicy} {.parameters}", "volumes.berth.dev Delete ")
	d.keeps(t, "data", "first", "")
	d.a.apply(t, snapshot)
	d.a.says(t, "volumesnapshot/before", "{.status.readyToUse}", "true")
	d.a.says(t, "volumesnapshot/before", "{.status.restoreSize}", "1Mi")
	content := d.host.kubectl(t, "get", "volumesnapshot", "--namespace", "berth-"+spacesOfControllers[0], spacesOfControllers[0]+"--default--before", "-o", "jsonpath={.status.boundVolumeSnapshotContentName}")
	if out := d.a.kubectl(t, "get", "volumesnapshot/before", "-o", "yaml"); content == "" || strings.Contains(out, content) {
		t.Errorf("the snapshot names the host's content %q:\n%s", content, out)
	}
	// What is written later is not in it.
	d.a.kubectl(t, "exec", "data", "--", "/tool", "append", "/data/words", "second")
	d.keeps(t, "restored", "first third", "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: before}")
	d.keeps(t, "cloned", "first second fourth", "dataSource: {kind: PersistentVolumeClaim, name: data}")

	d.a.kubectl(t, "delete", "volumesnapshot/before")
	eventually(t, func() error {
		out, err := d.host.tryKubectl(t, "", "get", "volumesnapshotcontent", content)
		if err == nil {
			return fmt.Errorf("the snapshot's content is still there: %s", out)
		}
		return nil
	})
}

func (d *controllersTest) resizing(t *testing.T) {
	claims := d.a.CoreV1().PersistentVolumeClaims("default")
	larger := []byte(`{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`)
	must(claims.Patch(t.Context(), "data", types.MergePatchType, larger, metav1.PatchOptions{}))(t)
	claim := await(t, claims.Get, "data", func(c *corev1.PersistentVolumeClaim) error {
		if size := c.Status.Capacity.Storage().String(); size != "32Mi" {
			return fmt.Errorf("its size is %s: %+v", size, c.Status)
		}
		return nil
	})
	await(t, d.a.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName, func(v *corev1.PersistentVolume) error {
		if v.Spec.NodeAffinity != nil {
			return errors.New("the volume tells its node")
		}
		return expect("the volume's size", v.Spec.Capacity.Storage().String(), "32Mi")
	})
	// It goes with its data.
	for _, name := range []string{"data", "restored", "cloned"} {
		d.a.kubectl(t, "delete", "--wait=false", "pod/"+name, "pvc/"+name)
	}
	eventually(t, func() error {
		volumes, err := d.host.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, v := range volumes.Items {
			if v.Spec.StorageClassName == "volumes" {
				return fmt.Errorf("volume %s is still there: %s", v.Name, v.Status.Phase)
			}
		}
		return nil
	})
}
