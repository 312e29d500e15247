// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// D4, S3, T9: under the rights of the chart, a dedicated space with a store in a database server has a pod without a volume. A pod on another
// node goes on with the same objects and keys, and the space comes back only if the admin trusts the pod. No store is copied.
func TestADedicatedSpaceWithAStoreInAServerHasAPodWithoutAVolume(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"PostgreSQL", "Etcd"} {
		t.Run(kind, func(t *testing.T) {
			checkCellInPod(t, &cell{name: "celled-" + strings.ToLower(kind), kind: kind, dsn: storesIn[kind].start(t).Database(t), left: storesIn[kind].left})
		})
	}
}

func checkCellInPod(t *testing.T, c *cell) {
	t.Helper()
	host, release := sharedBerth(t).host(t), c.name+"-release"
	template, account := podRights(t, host, release, "storeSecrets={"+c.name+"-store}")
	p := &podProcess{host: host, release: release, space: c.name, secret: t.TempDir(), data: t.TempDir(), at: []string{freeAddress(t), freeAddress(t)}}
	t.Cleanup(p.end)
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	listen := freeAddress(t)
	bucket := "file://" + t.TempDir()
	serve := func() {
		t.Helper()
		b.serve(t, "--data-dir", b.dir, "--listen", listen, "--host-kubeconfig", account.kubeconfig, "--store-secrets", release,
			"--platform-name", release, "--space-role", release+"-berth-space", "--idle-after", "0", "--snapshot-to", bucket,
			"--dedicated-pods", template, "--dedicated-pods-at", strings.Join(append(p.at, p.data), ","))
	}
	serve()
	p.logIfFailed(t, b)
	object := strings.Replace(strings.Replace(stored(c.name, c.kind, c.dsn), "metadata: {name: "+c.name+"-store,", "metadata: {name: "+c.name+"-store, namespace: "+release+",", 1),
		"spec: {store:", "spec: {platformName: "+release+", store:", 1)
	host.apply(t, object)
	awaitSpaceReady(t, host, c.name)
	space := b.space(t, c.name)
	kept := must(space.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)
	checkKept := func(when string) {
		t.Helper()
		eventually(t, func() error {
			still, err := space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			if err == nil && (still.UID != kept.UID || still.ResourceVersion != kept.ResourceVersion) {
				t.Errorf("%s: the object is %s at %s, want %s at %s", when, still.UID, still.ResourceVersion, kept.UID, kept.ResourceVersion)
			}
			return err
		})
	}

	host.kubectl(t, "patch", "space", c.name, "--type=merge", "-p", `{"spec":{"isolation":"Dedicated"}}`)
	p.run(t)
	awaitIsolation(t, host, c.name, "Dedicated")
	checkKept("in its pod")
	c.checkPod(t, p)
	t.Run("goes on after a kill of its process", func(t *testing.T) {
		space.kubectl(t, "create", "configmap", "before")
		p.run(t)
		checkKept("after a kill")
		eventually(t, func() error { _, err := space.tryKubectl(t, "", "get", "configmap", "before"); return err })
	})
	t.Run("takes new keys, and goes on in a pod on another node, while Berth starts again", func(t *testing.T) {
		berthDoes(t, "rotate", c.name, "--ca", "--data-dir", b.dir)
		space = b.space(t, c.name)
		checkKept("with new keys")
		p.end()
		b.crash(t)
		if err := os.RemoveAll(p.data); err != nil {
			t.Fatal(err)
		}
		serve()
		p.run(t)
		checkKept("on another node")
		eventually(t, func() error { _, err := space.tryKubectl(t, "", "get", "configmap", "before"); return err })
	})
	t.Run("is copied and restored by its pod", func(t *testing.T) {
		berthDoes(t, "snapshot", "create", c.name, "--data-dir", b.dir)
		space.kubectl(t, "delete", "configmap", "before")
		berthDoes(t, "snapshot", "restore", c.name, "--data-dir", b.dir)
		eventually(t, func() error { _, err := space.tryKubectl(t, "", "get", "configmap", "before"); return err })
		kept = must(space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}))(t)
	})
	t.Run("comes back once the admin trusts it", func(t *testing.T) {
		host.kubectl(t, "patch", "space", c.name, "--type=merge", "-p", `{"spec":{"isolation":"Shared"}}`)
		awaitReady(t, host, c.name, "True", "annotate the Space with berth.dev/trust-dedicated=true")
		b.crash(t)
		serve()
		awaitReady(t, host, c.name, "True", "annotate the Space with berth.dev/trust-dedicated=true")
		checkKept("until the admin trusts it")
		host.kubectl(t, "annotate", "space", c.name, "berth.dev/trust-dedicated=true")
		awaitIsolation(t, host, c.name, "Shared")
		checkKept("back in the shared process")
		checkNoPod(t, host, p)
	})
	toPod := func(t *testing.T, policy string) {
		t.Helper()
		p.end()
		host.kubectl(t, "patch", "space", c.name, "--type=merge", "-p", `{"spec":{"isolation":"Dedicated","deletionPolicy":"`+policy+`"}}`)
		p.run(t)
		awaitIsolation(t, host, c.name, "Dedicated")
	}
	t.Run("is retained, and not opened until the admin trusts it", func(t *testing.T) {
		toPod(t, "Retain")
		host.kubectl(t, "delete", "space", c.name, "--timeout=120s")
		p.end()
		checkNoPod(t, host, p)
		host.apply(t, object)
		awaitReady(t, host, c.name, "False", "annotate the Space with berth.dev/trust-dedicated=true")
		host.kubectl(t, "annotate", "space", c.name, "berth.dev/trust-dedicated=true")
		awaitSpaceReady(t, host, c.name)
		space = b.space(t, c.name)
		checkKept("in another space of that name")
	})
	t.Run("leaves a last snapshot when it is deleted in its pod", func(t *testing.T) {
		toPod(t, "Snapshot")
		before := snapshotsOf(t, b, c.name)
		b.crash(t)
		host.kubectl(t, "delete", "space", c.name, "--wait=false")
		serve() // a deletion goes on after a restart
		host.kubectl(t, "wait", "--for=delete", "space/"+c.name, "--timeout=120s")
		if after := snapshotsOf(t, b, c.name); after <= before {
			t.Errorf("there are %d snapshots of the deleted space, and were %d", after, before)
		}
		checkNoPod(t, host, p)
		if n, err := c.left(t.Context(), c.dsn); err == nil {
			t.Errorf("a deleted space has left %d rows in its database", n)
		}
	})
}

// checkPod checks the pod of the space: it has no volume, and the credentials of its database are in its Secret alone.
func (c *cell) checkPod(t *testing.T, p *podProcess) {
	t.Helper()
	name := "berth-" + c.name + "-dedicated"
	set := must(p.host.AppsV1().StatefulSets(p.release).Get(t.Context(), name, metav1.GetOptions{}))(t)
	if len(set.Spec.VolumeClaimTemplates) > 0 {
		t.Errorf("the pod has the claims %v", set.Spec.VolumeClaimTemplates)
	}
	if text := set.String(); strings.Contains(text, credentialsOf(c.dsn)) {
		t.Error("the StatefulSet has the credentials of the database")
	}
	secret := must(p.host.CoreV1().Secrets(p.release).Get(t.Context(), name, metav1.GetOptions{}))(t)
	for file, data := range secret.Data {
		if has := strings.Contains(string(data), credentialsOf(c.dsn)); has != (file == "store.json") {
			t.Errorf("%s has the credentials of the database: %t", file, has)
		}
	}
	if strings.Contains(p.running.output(), credentialsOf(c.dsn)) {
		t.Error("the log of the pod has the credentials of the database")
	}
}
