// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
spec: {type: LoadBalancer, selector: {app: other}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {selector: {app: other}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {clusterIP: None, selector: {app: other}, ports: [{port: 80}]}
`

// onHost is what a space has on the host that a restore may not lose if it fails.
func onHost(t *testing.T, host *cluster, namespace string) (services, claims map[string]string) {
	t.Helper()
	services, claims = map[string]string{}, map[string]string{}
	for _, s := range must(host.CoreV1().Services(namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		services[s.Name] = fmt.Sprint(s.UID, s.Spec.Type, s.Spec.ClusterIPs, s.Spec.Ports)
	}
	for _, c := range must(host.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		claims[c.Name] = fmt.Sprint(c.UID, " ", c.Spec.VolumeName)
	}
	return services, claims
}

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
	own := given{admin: listed.config, tokens: map[string]string{"of its own": listed.kubectl(t, "create", "token", "default")}}
	services, claims := onHost(t, host, "berth-listed")

	whole := must(os.ReadFile(filepath.Join(bucket, name+".tar.zst")))(t)
	const damaged = "demo/20200101T000000.000Z"
	if err := os.WriteFile(filepath.Join(bucket, damaged+".tar.zst"), whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	full := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resource.MustParse("1")}}}
	must(host.CoreV1().ResourceQuotas("berth-listed").Create(t.Context(), full, metav1.CreateOptions{}))(t)
	fails := func(reason, says string, args ...string) {
		t.Helper()
		args = append([]string{"snapshot", "restore", "--data-dir", b.dir}, args...)
		if _, stderr, code := runBerth(t, args...); code == 0 || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d, %s; want %q", reason, code, stderr, says)
		}
		if now := listed.awaitRunning(t, "default", "alone"); now.UID != old.UID || address() != was {
			t.Errorf("%s: it has pod %s and address %s, had %s and %s", reason, now.UID, address(), old.UID, was)
		}
		nowServices, nowClaims := onHost(t, host, "berth-listed")
		if diff := cmp.Diff(services, nowServices) + cmp.Diff(claims, nowClaims); diff != "" {
			t.Errorf("%s: on the host, -before +after:\n%s", reason, diff)
		}
	}
	for reason, c := range map[string]struct{ args, says string }{
		"it is there":              {name + " --as listed", "--replace"},
		"it is the same":           {name + " --as demo --replace", "without --as"},
		"it has an own process":    {name + " --as apart --replace", "process of its own"},
		"no name is given":         {name + " --replace", "--as"},
		"the snapshot is damaged":  {damaged + " --as listed --replace", "damaged"},
		"a service can't change":   {name + " --as listed --replace", "default/outside"},
		"there is no such one":     {"demo/20200101T000001.000Z --as listed --replace", "berth snapshot list"},
		"it is no name of a space": {name + " --as ../listed --replace", "--as"},
	} {
		fails(reason, c.says, strings.Fields(c.args)...)
	}
	listed.kubectl(t, "delete", "service", "outside") // as it says
	eventually(t, func() error { return checkSynced(t, listed, host, "listed", withReservations) })
	services, claims = onHost(t, host, "berth-listed")
	fails("the quota is exceeded", "exceeded quota", name, "--as", "listed", "--replace")
	if err := host.CoreV1().ResourceQuotas("berth-listed").Delete(t.Context(), full.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return checkSynced(t, listed, host, "listed", withReservations) })
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
	for what, err := range own.opens(t, listed.config) {
		if apierrors.IsUnauthorized(err) != strings.HasPrefix(what, "the token") {
			t.Errorf("given out before, %s: %v", what, err)
		}
	}
	if after.uid == before.uid {
		t.Error("both are known by one UID")
	}
	if after.services["web"].ClusterIP != was || after.services["headless"].ClusterIP != corev1.ClusterIPNone {
		t.Errorf("its services have %+v, the one that was there had %s", after.services, was)
	}
	eventually(t, func() error { return checkSynced(t, listed, host, "listed", withReservations) })
	if now := host.awaitRunning(t, "berth-listed", hostPod.Name); now.UID == hostPod.UID {
		t.Error("its pod of before runs on")
	}
	_, others := onHost(t, host, "berth-listed")
	for name, claim := range others {
		uid, volume, _ := strings.Cut(claim, " ")
		hadUID, hadVolume, _ := strings.Cut(claims[name], " ")
		if uid == hadUID || volume == "" || volume == hadVolume || volume == before.volume {
			t.Errorf("it has claim %s, had %s; the one of the snapshot has %s", claim, claims[name], before.volume)
		}
	}
	if len(others) != 1 || len(claims) != 1 {
		t.Errorf("it has the claims %v, had %v", others, claims)
	}

	// The same once more: what it has of it goes on.
	hostPod = host.awaitRunning(t, "berth-listed", hostPod.Name)
	services, _ = onHost(t, host, "berth-listed")
	berthDoes(t, "snapshot", "restore", name, "--as", "listed", "--replace", "--data-dir", b.dir)
	giveOut(t, listed, host, "listed")
	eventually(t, func() error { return checkSynced(t, listed, host, "listed", withReservations) })
	if now := host.awaitRunning(t, "berth-listed", hostPod.Name); now.UID != hostPod.UID {
		t.Error("restored again, it does not go on with its pods")
	}
	againServices, again := onHost(t, host, "berth-listed")
	if diff := cmp.Diff(services, againServices) + cmp.Diff(others, again); diff != "" {
		t.Errorf("restored again, on the host, -before +after:\n%s", diff)
	}
	if err := after.opens(t, listed.config)["the token requested"]; err != nil {
		t.Errorf("restored again, a token of its own account does not open it: %v", err)
	}
	checkPrivate(t, b.dir)
}
