// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// D2, T9: when Berth is killed and the volume of a dedicated space is lost, the space is restored with every write that was acknowledged a second
// before. Its process knows nothing of the place of the replica.
func TestADedicatedSpaceLosesAtMostASecond(t *testing.T) {
	t.Parallel()
	bucket := filepath.Join(t.TempDir(), "bucket")
	b := start(t, "--snapshot-to", "file://"+bucket)
	host := b.host(t)
	spec := `{isolation: Dedicated, snapshots: {replication: Continuous, intervalSeconds: 0}}`
	applySpace(t, host, "copied-apart", spec)
	if len(childrenOf(t, b.Pid)) != 1 {
		t.Fatal("the space has no process of its own")
	}
	if status := awaitReplicated(t, host, "copied-apart", "True UpToDate"); status.Replication.Revision == 0 || status.Replication.Time == nil {
		t.Errorf("the status is %+v", status.Replication)
	}
	config := string(must(os.ReadFile(filepath.Join(b.dir, "dedicated", "copied-apart", "config.json")))(t))
	if strings.Contains(config, bucket) {
		t.Errorf("the process is told where the bucket is:\n%s", config)
	}

	own := childrenOf(t, b.Pid)[0]
	acknowledged := writeUntilKilled(t, b.space(t, "copied-apart"), bucket, 5*time.Second)
	b.crash(t)
	eventually(t, func() error { // its process ends, and writes, a moment later
		// PID (NAME) STATE ..., where the state Z is that of a process that has ended, and for whose end nobody asks.
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", own)); err == nil && !strings.Contains(string(stat), ") Z ") {
			return errors.New("the process of the space has not ended")
		}
		return nil
	})
	if err := os.RemoveAll(filepath.Join(b.dir, "spaces", "copied-apart")); err != nil {
		t.Fatal(err)
	}
	berthDoes(t, "snapshot", "restore", "copied-apart/latest", "--from", "file://"+bucket, "--data-dir", b.dir)
	b.up(t, "--snapshot-to", "file://"+bucket)
	host = b.host(t)
	eventually(t, func() error {
		_, err := b.space(t, "copied-apart").tryKubectl(t, "", "get", "namespaces")
		return err
	})
	there := map[string]bool{}
	for _, o := range must(b.space(t, "copied-apart").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		there[o.Name] = true
	}
	acknowledged(there)
	b.space(t, "copied-apart").kubectl(t, "create", "configmap", "after", "--from-literal=a=b")
	awaitReplicated(t, host, "copied-apart", "True UpToDate")

	// The process itself restores the replica while Berth runs.
	b.space(t, "copied-apart").kubectl(t, "create", "configmap", "last", "--from-literal=a=b")
	eventually(t, func() error { return hasReplicated(t, b, host, "copied-apart") })
	berthDoes(t, "snapshot", "restore", "copied-apart/latest", "--data-dir", b.dir)
	if got := b.space(t, "copied-apart").kubectl(t, "get", "configmap", "last", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("the restored space has %q", got)
	}
	eventually(t, func() error { return hasReplicated(t, b, host, "copied-apart") })
	// What is written before it sleeps is in the replica, which goes on in the shared process.
	b.space(t, "copied-apart").kubectl(t, "create", "configmap", "sleeps", "--from-literal=a=b")
	berthDoes(t, "sleep", "copied-apart", "--data-dir", b.dir)
	eventually(t, func() error { return hasReplicated(t, b, host, "copied-apart") })
	host.apply(t, spaceObject("copied-apart", `{isolation: Shared, snapshots: {replication: Continuous, intervalSeconds: 0}}`))
	host.kubectl(t, "wait", "--for=jsonpath={.status.isolation}=Shared", "space/copied-apart", "--timeout=180s")
	b.space(t, "copied-apart").kubectl(t, "create", "configmap", "shared", "--from-literal=a=b")
	eventually(t, func() error { return hasReplicated(t, b, host, "copied-apart") })
	berthDoes(t, "snapshot", "restore", "copied-apart/latest", "--as", "copy-of-copied-apart", "--data-dir", b.dir)
	for _, name := range []string{"after", "last", "sleeps", "shared"} {
		if got := b.space(t, "copy-of-copied-apart").kubectl(t, "get", "configmap", name, "-o", "jsonpath={.data.a}"); got != "b" {
			t.Errorf("in the copy, the config map %s has %q", name, got)
		}
	}
}

// hasReplicated reports that the replica of a space has what was written.
func hasReplicated(t *testing.T, b *berth, host *cluster, space string) error {
	t.Helper()
	awaitReplicated(t, host, space, "True UpToDate")
	_, text := fetch(t, b.socket(), "http://berth/metrics")
	if !strings.Contains(text, "\n"+`berth_space_replication_lag_seconds{space="`+space+`"} 0`+"\n") {
		return errors.New("the replica lags")
	}
	return nil
}

// D2, S3, T9: a pod that loses its volume gets its store from the replica. Nothing that the pod wrote is opened in the shared process without trust.
func TestAPodThatLosesItsVolumeIsRestoredFromItsReplica(t *testing.T) {
	t.Parallel()
	const release = "replicated-pods"
	host := sharedBerth(t).host(t)
	template, account := podRights(t, host, release)
	p := &podProcess{host: host, release: release, space: "pod-copied", secret: t.TempDir(), data: t.TempDir(), at: []string{freeAddress(t), freeAddress(t)}}
	t.Cleanup(p.end)
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	bucket := filepath.Join(t.TempDir(), "bucket")
	b.serve(t, "--data-dir", b.dir, "--listen", freeAddress(t), "--host-kubeconfig", account.kubeconfig, "--space", "pod-copied", "--snapshot-to", "file://"+bucket,
		"--platform-name", release, "--space-role", release+"-berth-space", "--idle-after", "0",
		"--dedicated-pods", template, "--dedicated-pods-at", strings.Join(append(p.at, p.data), ","))
	p.logIfFailed(t, b)
	awaitReady(t, host, "pod-copied", "True")
	host.kubectl(t, "patch", "space", "pod-copied", "--type", "merge", "--patch", `{"spec": {"isolation": "Dedicated", "snapshots": {"replication": "Continuous"}}}`)
	eventually(t, func() error {
		_, err := host.CoreV1().Secrets(release).Get(t.Context(), "berth-pod-copied-dedicated", metav1.GetOptions{})
		return err
	})
	p.run(t)
	if strings.Contains(p.configuration, bucket) {
		t.Errorf("the pod is told where the bucket is:\n%s", p.configuration)
	}
	space := b.space(t, "pod-copied")
	writes := func(name string) {
		t.Helper()
		eventually(t, func() error {
			_, err := space.tryKubectl(t, "", "create", "configmap", name, "--from-literal=a=b")
			return err
		})
		awaitReplicated(t, host, "pod-copied", "True UpToDate")
		eventually(t, func() error { return hasReplicated(t, b, host, "pod-copied") })
	}
	host.kubectl(t, "wait", "--for=jsonpath={.status.isolation}=Dedicated", "space/pod-copied", "--timeout=180s")
	writes("first")
	writes("second")

	p.end() // and its volume is lost
	for _, name := range must(filepath.Glob(filepath.Join(p.data, "*")))(t) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	p.run(t)
	awaitReady(t, host, "pod-copied", "has lost its store")
	if out, errs, code := runBerth(t, "snapshot", "restore", "pod-copied/latest", "--data-dir", b.dir); code != 0 && !strings.Contains(errs, "Berth retries") {
		t.Fatalf("restore: %s %s", out, errs)
	}
	eventually(t, func() error {
		for _, name := range []string{"first", "second"} {
			if _, err := space.tryKubectl(t, "", "get", "configmap", name); err != nil {
				return err
			}
		}
		return nil
	})
	writes("third")
	if _, errs, code := runBerth(t, "snapshot", "restore", "pod-copied/latest", "--as", "pod-copy", "--data-dir", b.dir); code == 0 || !strings.Contains(errs, "--trust-dedicated") {
		t.Errorf("a copy in the shared process without trust: code %d, %s", code, errs)
	}
	berthDoes(t, "snapshot", "restore", "pod-copied/latest", "--as", "pod-copy", "--trust-dedicated", "--data-dir", b.dir)
	if got := b.space(t, "pod-copy").kubectl(t, "get", "configmap", "third", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("the copy has %q", got)
	}
}
