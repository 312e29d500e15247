// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state is what `berth spaces` says of a space.
func (b *berth) stateOf(t *testing.T, space string) (state, message string) {
	t.Helper()
	stdout, stderr, code := runBerth(t, "spaces", space, "-o", "json", "--data-dir", b.dir)
	if code != 0 {
		t.Fatalf("berth spaces %s ends with %d: %s", space, code, stderr)
	}
	var object struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal([]byte(stdout), &object); err != nil || len(object.Status.Conditions) == 0 {
		t.Fatalf("berth spaces %s prints (%v):\n%s", space, err, stdout)
	}
	return object.Status.Conditions[0].Reason, object.Status.Conditions[0].Message
}

func (b *berth) awaitState(t *testing.T, space, want string) {
	t.Helper()
	eventually(t, func() error {
		if state, message := b.stateOf(t, space); state != want {
			return fmt.Errorf("space %s is %s (%s), want %s", space, state, message, want)
		}
		return nil
	})
}

// awaitServed waits until a space serves. A state that somebody saw earlier is not enough: a space that nobody uses may sleep by now.
func (b *berth) awaitServed(t *testing.T, space string) {
	t.Helper()
	client := b.space(t, space)
	eventually(t, func() error {
		_, err := whoAmI(t, client)
		return err
	})
}

func (b *berth) log(t *testing.T) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(b.dir, "berth.log")))(t))
}

// T8, T7: a space that nobody uses sleeps, its pods run on, and whoever comes is
// answered, not refused, however many they are.
func TestAnIdleSpaceSleepsUntilSomebodyComes(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "a,b", "--idle-after", "4s")
	a, host := b.space(t, "a"), b.host(t)
	a.run(t, "default", newPod("stays"))
	b.awaitState(t, "a", "Asleep")
	b.awaitState(t, "b", "Asleep")

	if pod := must(host.CoreV1().Pods("berth-a").Get(t.Context(), "a--default--stays", metav1.GetOptions{}))(t); pod.Status.Phase != corev1.PodRunning {
		t.Errorf("while its space sleeps a pod is %s on the host", pod.Status.Phase)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := newCluster(t, filepath.Join(b.dir, "a.kubeconfig")).CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}); err != nil {
				t.Errorf("while the space wakes: %v", err)
			}
		})
	}
	wg.Wait()
	if state, _ := b.stateOf(t, "b"); state != "Asleep" {
		t.Errorf("the other space is %s", state)
	}
	if out := b.space(t, "b").kubectl(t, "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/default") {
		t.Errorf("kubectl wakes the space and sees:\n%s", out)
	}
	b.awaitState(t, "a", "Asleep") // once more
}

// T8: what happens on the host while a space sleeps is in the space soon after,
// though nobody asked.
func TestAPodThatEndsWhileItsSpaceSleepsWakesIt(t *testing.T) {
	t.Parallel()
	b := start(t, "--idle-after", "4s")
	demo, host := b.demo(t), b.host(t)
	pod := demo.run(t, "default", newPod("ends", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
	b.awaitState(t, "demo", "Asleep")

	watch := must(host.CoreV1().Pods(hostNamespace).Get(t.Context(), hostName("default", "ends"), metav1.GetOptions{}))(t)
	watch.ResourceVersion = "" // whatever others write meanwhile
	watch.Status.Phase, watch.Status.Reason = corev1.PodFailed, "NodeAffinity"
	must(host.CoreV1().Pods(hostNamespace).UpdateStatus(t.Context(), watch, metav1.UpdateOptions{}))(t)
	// It wakes by itself, does what there is to do, and sleeps again.
	eventually(t, func() error {
		if woken := strings.Count(b.log(t), `"Space woke" space="demo"`); woken < 2 {
			return fmt.Errorf("it woke %d times", woken)
		}
		return nil
	})
	b.awaitState(t, "demo", "Asleep")
	if now := must(demo.CoreV1().Pods("default").Get(t.Context(), "ends", metav1.GetOptions{}))(t); now.UID != pod.UID || now.Status.Reason != "NodeAffinity" {
		t.Errorf("the pod says %q, %q", now.Status.Reason, now.Status.Message)
	}
}

// T8, S8: a CronJob's run is not missed by a space that sleeps.
func TestACronJobRunsThoughItsSpaceSleeps(t *testing.T) {
	t.Parallel()
	b := start(t, "--idle-after", "4s")
	demo := b.demo(t)
	demo.apply(t, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: default}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: nginx}]
`)
	b.awaitState(t, "demo", "Asleep")
	hostPods := func() int {
		return len(must(b.host(t).CoreV1().Pods(hostNamespace).List(t.Context(), metav1.ListOptions{}))(t).Items)
	}
	before := hostPods()
	eventually(t, func() error {
		if now := hostPods(); now <= before {
			return fmt.Errorf("there are %d pods on the host, as before", now)
		}
		return nil
	})
}

// T7, D1: one space that cannot run says so, and the others serve.
func TestASpaceWithADamagedStoreLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "broken,whole")
	b.stop(t, syscall.SIGTERM)
	path := filepath.Join(b.dir, "spaces", "broken", "store.db")
	store := must(os.ReadFile(path))(t)
	if err := os.WriteFile(path, []byte("no store"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.up(t, "--space", "broken,whole")
	if out := b.stderr.String(); !strings.Contains(out, "Space broken does not start") {
		t.Errorf("berth up does not say that a space does not start:\n%s", out)
	}
	eventually(t, func() error { // it is Starting while Berth retries
		if state, message := b.stateOf(t, "broken"); state != "Failed" || !strings.Contains(message, path) {
			return fmt.Errorf("the space is %s: %s", state, message)
		}
		return nil
	})
	out, err := b.space(t, "broken").tryKubectl(t, "", "get", "pods", "--request-timeout=5s")
	if err == nil || strings.Contains(out+err.Error(), path) {
		t.Errorf("kubectl in the broken space: %v\n%s", err, out)
	}
	b.space(t, "whole").run(t, "default", newPod("unharmed"))

	if err := os.WriteFile(path, store, 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := runBerth(t, "wake", "broken", "--data-dir", b.dir); code != 0 || !strings.Contains(stdout, "space/broken awake") {
		t.Errorf("berth wake ends with %d: %s%s", code, stdout, stderr)
	}
	b.space(t, "broken").kubectl(t, "get", "pods")
}

// Spaces of earlier runs sleep again once they were looked after; at the bound
// on spaces that are awake, those that nobody uses are put to sleep.
func TestMoreSpacesThanMayBeAwakeServeInTurn(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	b := start(t, "--space", strings.Join(names, ","))
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "a", "--spaces-max", "1", "--idle-after", "4s")
	for range 2 {
		for _, name := range names {
			b.space(t, name).kubectl(t, "get", "namespaces")
		}
	}
	stdout, stderr, code := runBerth(t, "spaces", "--data-dir", b.dir)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[0], "NAME ") || strings.Count(stdout, "Running") != 1 {
		t.Errorf("berth spaces ends with %d, and prints:\n%s%s", code, stdout, stderr)
	}
}

// What the commands on a running berth say when there is none, or no such space.
func TestCommandsOnSpacesSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for args, says := range map[string]string{
		"spaces --data-dir " + dir:                 "the Berth server is not running on " + dir,
		"wake demo --data-dir " + dir:              "the Berth server is not running on " + dir,
		"sleep no --data-dir " + sharedDir(t):      `"no" not found`,
		"spaces no --data-dir " + sharedDir(t):     `"no" not found`,
		"spaces -o yml --data-dir " + dir:          "yml",
		"up --idle-after -1s --data-dir " + dir:    "--idle-after=-1s",
		"up --spaces-max -1 --data-dir " + dir:     "--spaces-max=-1",
		"up --platform-name a.b --data-dir " + dir: "--platform-name=a.b",
	} {
		stdout, stderr, code := runBerth(t, strings.Fields(args)...)
		if code == 0 || stdout != "" || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("berth %s ends with %d, and says:\n%s%s", args, code, stdout, stderr)
		}
	}
}

func sharedDir(t *testing.T) string { return sharedBerth(t).dir }
