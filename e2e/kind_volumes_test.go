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
	// volumesRelease is the namespace of the release of the test of tenants' own volumes.
	volumesRelease = "berth-volumes-test"
	// archive is a volume of the tenant's own, with a handle.
	archive = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: archive}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: volumes.berth.dev, volumeHandle: %s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: archive}
spec:
  volumeName: archive
  storageClassName: ""
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 16Mi}}
`
	reader = `
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %s, args: [cat, /data/words, --, sleep], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: archive}}]
`
)

// S1, M4: a pod reads what is on a volume of the tenant's own, of a CSI driver that is
// real. The volume has a handle that the admin gave to the space. No other handle
// leads to a volume, and what the tenant deletes stays on it.
func TestVolumesOfATenantsOwnOnARealCluster(t *testing.T) {
	host, images := realCluster(t, envImage, envTool, envDrivers)
	image, tool := images[0], images[1]
	spaces := []string{"volumes-a", "volumes-b"}
	ownRelease(t, host, volumesRelease, spaces...)
	provideVolumes(t, host)
	// A volume of this driver is a directory of a node, and the tenant's own volumes can't name a node.
	home := must(host.CoreV1().Pods("volumes").List(t.Context(), metav1.ListOptions{}))(t).Items[0].Spec.NodeName
	host.kubectl(t, "label", "--overwrite", "node", home, "volumes=here")
	t.Cleanup(func() { host.kubectlAfter(t, "", "label", "node", home, "volumes-") })
	helm(t, "install", "berth", "../charts/berth", "--namespace", volumesRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", fmt.Sprintf("%s,operator.enabled=false,storage.size=1Gi,service.type=NodePort,spaces[0].name=%s,spaces[1].name=%s,"+
			"spaceDefaults.nodes.selector.volumes=here,allowedSync.ownpersistentvolumes=volumes.berth.dev=any:pvc-", ofImage(image), spaces[0], spaces[1]))
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	d := &controllersTest{host: host, a: reached(t, host, node, volumesRelease, spaces[0]), b: reached(t, host, node, volumesRelease, spaces[1]), tool: tool}

	// The host has provisioned these, and says whose they are.
	handles := map[string]string{}
	for name, space := range map[string]*cluster{spaces[0]: d.a, spaces[1]: d.b} {
		await(t, space.StorageV1().StorageClasses().Get, "volumes", there)
		(&controllersTest{host: host, a: space, tool: tool}).keeps(t, "data", "first", "")
		eventually(t, func() error {
			all, err := host.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/space=" + name})
			if err != nil || len(all.Items) != 1 {
				return fmt.Errorf("space %s has %d volumes on the host: %w", name, len(all.Items), err)
			}
			handles[name] = all.Items[0].Spec.CSI.VolumeHandle
			return nil
		})
	}

	// The admin keeps a's data, and gives it to a by its handle.
	kept := must(host.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/space=" + spaces[0]}))(t).Items[0].Name
	host.kubectl(t, "patch", "persistentvolume", kept, "--patch", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	d.a.kubectl(t, "delete", "--wait", "pod/data", "pvc/data")
	eventually(t, func() error {
		return expect("the volume's phase", host.kubectl(t, "get", "persistentvolume", kept, "-o", "jsonpath={.status.phase}"), string(corev1.VolumeReleased))
	})
	host.kubectl(t, "delete", "persistentvolume", kept)
	gives := fmt.Sprintf(`{"spec":{"sync":[{"resource":"ownpersistentvolumes","value":"volumes.berth.dev=any:%s"}]}}`, handles[spaces[0]])
	host.kubectl(t, "patch", "space", spaces[0], "--type", "merge", "--patch", gives)

	eventually(t, func() error { // the control plane starts again with the option
		out, err := d.a.tryKubectl(t, fmt.Sprintf(archive, handles[spaces[0]]), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	d.a.apply(t, fmt.Sprintf(reader, tool))
	d.a.awaitRunning(t, "default", "reader")
	eventually(t, func() error {
		out, err := d.a.tryKubectl(t, "", "logs", "reader")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return expect("what is on the volume", strings.TrimSpace(out), "first")
	})
	onHost := await(t, host.CoreV1().PersistentVolumes().Get, spaces[0]+".archive", there)
	if onHost.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || onHost.Spec.ClaimRef.Namespace != "berth-"+spaces[0] {
		t.Errorf("on the host it is %+v", onHost.Spec)
	}

	// Neither b's volume for a, nor any for b.
	theirs := strings.NewReplacer("name: archive", "name: theirs", "volumeName: archive", "volumeName: theirs").Replace(fmt.Sprintf(archive, handles[spaces[1]]))
	d.a.apply(t, theirs)
	eventually(t, func() error {
		out := d.a.kubectl(t, "get", "events", "--field-selector", "involvedObject.name=theirs", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "spec.csi.volumeHandle") {
			return errors.New("no event says why the claim has no volume: " + out)
		}
		return nil
	})
	if out, err := d.b.tryKubectl(t, fmt.Sprintf(archive, handles[spaces[0]]), "apply", "-f", "-"); err == nil || !strings.Contains(out, "spec.volumeName") {
		t.Errorf("a space without the option names a volume: %v: %s", err, out)
	}

	// The data outlives the claim, and the space.
	d.a.kubectl(t, "delete", "--wait", "pod/reader", "pvc/archive")
	awaitGone(t, "the volume on the host", host.CoreV1().PersistentVolumes().Get, onHost.Name)
	d.a.says(t, "pv/archive", "{.status.phase}", string(corev1.VolumeReleased))
	if _, err := d.a.CoreV1().PersistentVolumes().Patch(t.Context(), "archive", types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d.a.apply(t, fmt.Sprintf(archive, handles[spaces[0]]))
	await(t, d.a.CoreV1().PersistentVolumeClaims("default").Get, "archive", bound)
	host.kubectl(t, "delete", "space", spaces[0], "--wait")
	awaitGone(t, "the volume on the host", host.CoreV1().PersistentVolumes().Get, onHost.Name)
}
