// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// held is what a space holds in whose place a snapshot is put: some of it under
// names that the snapshot has, too.
const held = `
apiVersion: v1
kind: ConfigMap
metadata: {name: own}
data: {colour: green}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  containers: [{name: main, image: nginx, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: other}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {selector: {app: other}, ports: [{port: 80}]}
`

// D2, T2: a space that was listed before it was restored, as the chart has it,
// becomes what a snapshot of another holds: it keeps its kubeconfig, and nothing
// of what it had. If that fails it is as it was.
func TestASnapshotTakesThePlaceOfAListedSpace(t *testing.T) {
	t.Parallel()
	bucket := filepath.Join(t.TempDir(), "bucket")
	b := start(t, "--space", "demo,listed", "--dedicated", "apart", "--snapshot-to", "file://"+bucket)
	demo, listed, host := b.demo(t), b.space(t, "listed"), b.host(t)
	demo.apply(t, snapshotted)
	before := giveOut(t, demo, host, "demo")
	name := strings.TrimSuffix(strings.TrimPrefix(berthDoes(t, "snapshot", "create", "demo", "--data-dir", b.dir), "snapshot/"), " taken\n")
	listed.apply(t, held)
	old := listed.awaitRunning(t, "default", "alone")
	address := func() string { return listed.kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") }
	was, hostPod := address(), host.awaitRunning(t, "berth-listed", "listed--default--alone")

	whole := must(os.ReadFile(filepath.Join(bucket, name+".tar.zst")))(t)
	const damaged = "demo/20200101T000000.000Z"
	if err := os.WriteFile(filepath.Join(bucket, damaged+".tar.zst"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	full := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resource.MustParse("1")}}}
	must(host.CoreV1().ResourceQuotas("berth-listed").Create(t.Context(), full, metav1.CreateOptions{}))(t)
	for reason, c := range map[string]struct{ args, says string }{
		"it is there":              {name + " --as listed", "--replace"},
		"it is the same":           {name + " --as demo --replace", "without --as"},
		"it has an own process":    {name + " --as apart --replace", "process of its own"},
		"no name is given":         {name + " --replace", "--as"},
		"the snapshot is damaged":  {damaged + " --as listed --replace", "damaged"},
		"the host has no room":     {name + " --as listed --replace", "exceeded quota"},
		"there is no such one":     {"demo/20200101T000001.000Z --as listed --replace", "berth snapshot list"},
		"it is no name of a space": {name + " --as ../listed --replace", "--as"},
	} {
		args := append([]string{"snapshot", "restore", "--data-dir", b.dir}, strings.Fields(c.args)...)
		if _, stderr, code := runBerth(t, args...); code == 0 || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: %d, %s; want %q", reason, code, stderr, c.says)
		}
		if now := listed.awaitRunning(t, "default", "alone"); now.UID != old.UID || address() != was {
			t.Errorf("%s: it has pod %s and address %s, had %s and %s", reason, now.UID, address(), old.UID, was)
		}
	}
	if err := host.CoreV1().ResourceQuotas("berth-listed").Delete(t.Context(), full.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return checkMirrored(t, listed, host, "listed", withReservations) })
	if now := host.awaitRunning(t, "berth-listed", hostPod.Name); now.UID != hostPod.UID {
		t.Error("what it ran was disturbed")
	}

	berthDoes(t, "snapshot", "restore", name, "--as", "listed", "--replace", "--data-dir", b.dir)
	after := giveOut(t, listed, host, "listed")
	if _, err := listed.CoreV1().ConfigMaps("default").Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what it held is there: %v", err)
	}
	for what, err := range before.opens(t, listed.config) {
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("%s opens it: %v", what, err)
		}
	}
	for what, err := range after.opens(t, listed.config) {
		if err != nil {
			t.Errorf("%s does not open its own: %v", what, err)
		}
	}
	if after.uid == before.uid {
		t.Error("both are known by one UID")
	}
	if after.services["web"].ClusterIP != was || after.services["headless"].ClusterIP != corev1.ClusterIPNone {
		t.Errorf("its services have %+v, the one that was there had %s", after.services, was)
	}
	eventually(t, func() error { return checkMirrored(t, listed, host, "listed", withReservations) })
	if now := host.awaitRunning(t, "berth-listed", hostPod.Name); now.UID == hostPod.UID {
		t.Error("its pod of before runs on")
	}
	claims := must(host.CoreV1().PersistentVolumeClaims("berth-listed").List(t.Context(), metav1.ListOptions{}))(t)
	if len(claims.Items) != 1 || claims.Items[0].Spec.VolumeName == before.volume {
		t.Errorf("it has the claims %+v", claims.Items)
	}
	checkPrivate(t, b.dir)
}
