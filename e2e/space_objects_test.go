// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spaceObject is a manifest; spec is in YAML's flow style.
func spaceObject(name, spec string) string {
	return fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: Space, metadata: {name: %s}, spec: %s}", name, spec)
}

// applySpace has the host hold a space, and waits until it is ready as that says.
func applySpace(t *testing.T, host *cluster, name, spec string) {
	t.Helper()
	host.apply(t, spaceObject(name, spec))
	host.kubectl(t, "wait", "--for=condition=Ready", "space/"+name, "--timeout=180s")
}

// readyOf is the status, reason, and message of a space's condition Ready, or why the space can't be read.
func readyOf(t *testing.T, host *cluster, name string) string {
	t.Helper()
	out, _ := host.tryKubectl(t, "", "get", "space", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].reason} {.status.conditions[?(@.type=="Ready")].message}`)
	return out
}

func awaitReady(t *testing.T, host *cluster, name string, says ...string) {
	t.Helper()
	eventually(t, func() error {
		ready := readyOf(t, host, name)
		for _, text := range says {
			if !strings.Contains(ready, text) {
				return fmt.Errorf("space %s is %q, want %q", name, ready, text)
			}
		}
		return nil
	})
}

// T7, X2, X6: the commands of issue 11: a space comes with `kubectl apply`, and goes with `kubectl delete`, which leaves
// nothing. Another one is not interrupted.
func TestASpaceComesAndGoesWithKubectl(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other")
	host, other := b.host(t), b.space(t, "other")
	watch := must(other.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()

	host.kubectl(t, "apply", "-f", "../examples/space.yaml")
	host.kubectl(t, "wait", "--for=condition=Ready", "space/team-a", "--timeout=180s")
	kubeconfig, _, code := runBerth(t, "kubeconfig", "team-a", "--data-dir", b.dir)
	path := filepath.Join(t.TempDir(), "a.kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil || code != 0 {
		t.Fatalf("berth kubeconfig ends with %d (%v)", code, err)
	}
	team := newCluster(t, path)
	team.kubectl(t, "create", "deployment", "web", "--image=nginx")
	team.awaitPods(t, "default", "app=web", 1)

	t.Run("kubectl get shows how it is", func(t *testing.T) {
		eventually(t, func() error { // usage follows some seconds later
			lines := strings.Split(host.kubectl(t, "get", "spaces"), "\n")
			if fields := strings.Fields(lines[0]); strings.Join(fields, " ") != "NAME READY STATE CPU MEMORY AGE" {
				t.Fatalf("the columns are %q", fields)
			}
			for _, line := range lines[1:] {
				if fields := strings.Fields(line); len(fields) == 6 && fields[0] == "team-a" {
					return expect("space team-a", strings.Join(fields[1:5], " "), "True Running 250m/64 512Mi/128Gi")
				}
			}
			return errors.New("team-a is not there")
		})
		wide := host.kubectl(t, "get", "space", "team-a", "-o", "wide")
		for _, want := range []string{"ENDPOINT", "https://127.0.0.1:", "/spaces/team-a", "Shared", "v1.", "the space serves requests and syncs"} {
			if !strings.Contains(wide, want) {
				t.Errorf("there is no %q in\n%s", want, wide)
			}
		}
		for _, condition := range []string{"HostReachable", "StoreHealthy", "Synced"} {
			host.kubectl(t, "wait", "--for=condition="+condition, "space/team-a", "--timeout=30s")
		}
	})

	host.kubectl(t, "delete", "space", "team-a", "--wait", "--timeout=120s")
	if left := traces(t, host, b.dir, "team-a"); len(left) > 0 {
		t.Errorf("it has left %q", left)
	}
	other.kubectl(t, "create", "configmap", "after")
	for event := range watch.ResultChan() {
		if o, ok := event.Object.(*corev1.ConfigMap); ok && o.Name == "after" {
			return
		}
	}
	t.Error("a watch in another space was interrupted")
}

// T7, T8, Q1, M4: a changed spec takes effect in the space and on the host, without a pod that is lost; one that means nothing
// is refused with its field, or told in the condition, and the space goes on as it was, also after a restart.
func TestAChangedSpecTakesEffect(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other")
	host := b.host(t)
	applySpace(t, host, "changing", `{limits: {watches: "400"}}`)
	space := b.space(t, "changing")
	pod := space.run(t, "default", newPod("stays"))
	create := func(name string) string {
		out, _ := space.tryKubectl(t, "", "create", "configmap", name)
		return out
	}

	applySpace(t, host, "changing", `{quota: {pods: "1"}, hostNamespace: {labels: {example.com/team: a}}}`)
	if got := host.kubectl(t, "get", "namespace", "berth-changing", "-o", `jsonpath={.metadata.labels.example\.com/team}`); got != "a" {
		t.Errorf("the host namespace is labelled %q", got)
	}
	if now := space.awaitRunning(t, "default", "stays"); now.UID != pod.UID {
		t.Error("the change has cost it a pod")
	}
	must(space.CoreV1().Pods("default").Create(t.Context(), newPod("second"), metav1.CreateOptions{}))(t)
	eventually(t, func() error { // its quota is that of the spec
		if ready := host.kubectl(t, "get", "space", "changing", "-o", `jsonpath={.status.conditions[?(@.type=="Synced")].reason} {.status.quota.hard.pods}`); ready != "RejectedByHost 1" {
			return fmt.Errorf("with a pod too many, Synced is %q", ready)
		}
		return nil
	})

	if out, err := host.tryKubectl(t, spaceObject("changing", `{podSecurity: {level: privileged}}`), "apply", "-f", "-"); err == nil || !strings.Contains(out, "spec.podSecurity.level") {
		t.Errorf("a level that there is not: %v: %s", err, out)
	}
	host.apply(t, spaceObject("changing", `{limits: {wathces: "3"}}`))
	awaitReady(t, host, "changing", "False InvalidSpec", `spec.limits[wathces]: Invalid value: "wathces"`)
	generations := func() string {
		return host.kubectl(t, "get", "space", "changing", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}")
	}
	if got := generations(); got != "3 2" {
		t.Errorf("the generations are %s, want 3 in the object, and 2 in the space", got)
	}
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "other")
	host = b.host(t)
	if out := b.space(t, "changing").kubectl(t, "get", "pod", "stays", "-o", "jsonpath={.metadata.uid}"); out != string(pod.UID) {
		t.Errorf("with a spec that means nothing, the space is not served after a restart: %s", out)
	}
	if got := host.kubectl(t, "get", "resourcequota", "-n", "berth-changing", "berth", "-o", "jsonpath={.spec.hard.pods}"); got != "1" {
		t.Errorf("the quota is that of another spec than the one before: %s", got)
	}

	applySpace(t, host, "changing", `{paused: true, quota: {pods: "5"}}`)
	if got := generations(); !strings.HasSuffix(got, " 2") {
		t.Errorf("a space that is paused changes: %s", got)
	}
	if out := create("while-paused"); !strings.Contains(out, "created") {
		t.Errorf("a space that is paused does not serve: %s", out)
	}
	applySpace(t, host, "changing", `{quota: {pods: "5"}}`)
	b.space(t, "changing").awaitRunning(t, "default", "second")
	if got := generations(); got != "5 5" {
		t.Errorf("the generations are %s", got)
	}
}

// T9: a space becomes dedicated, and shared again, while it serves.
func TestASpaceChangesItsIsolationWhileItRuns(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other", "--idle-after", "0", "--dedicated-max", "1")
	host := b.host(t)
	applySpace(t, host, "moving", `{isolation: Dedicated}`)
	if children := childrenOf(t, b.Pid); len(children) != 1 {
		t.Errorf("berth has the processes %v, want one", children)
	}
	pod := b.space(t, "moving").run(t, "default", newPod("stays"))
	for _, isolation := range []string{"Shared", "Dedicated", "Shared"} {
		applySpace(t, host, "moving", `{isolation: `+isolation+`}`)
		eventually(t, func() error {
			dedicated := len(childrenOf(t, b.Pid)) == 1
			return expect("dedicated", dedicated, isolation == "Dedicated")
		})
		if now := b.space(t, "moving").awaitRunning(t, "default", "stays"); now.UID != pod.UID {
			t.Errorf("as %s, it has another pod", isolation)
		}
	}

	applySpace(t, host, "moving", `{isolation: Dedicated}`)
	host.apply(t, spaceObject("other", `{isolation: Dedicated}`))
	awaitReady(t, host, "other", "False Failed", "--dedicated-max allows no more")
	b.space(t, "other").kubectl(t, "get", "namespaces") // it goes on as it is
}

// T7: what is not on the host is no reason to delete anything: the platform may be on another host, or under another name. A
// space whose object was removed by force is stopped, and its store and its host objects stay, for an admin to say what
// becomes of them.
func TestASpaceWithoutItsObjectIsLeftAlone(t *testing.T) {
	t.Parallel()
	existing := sharedBerth(t)
	host := existing.host(t)
	kubeconfig := filepath.Join(existing.dir, "host.kubeconfig")
	args := []string{"--host-kubeconfig", kubeconfig, "--platform-name", "careless", "--space", "careful"}
	b := start(t, args...)
	applySpace(t, host, "given-up", `{platformName: careless}`)
	b.space(t, "given-up").kubectl(t, "create", "configmap", "kept")
	pod := b.space(t, "given-up").run(t, "default", newPod("stays"))
	b.stop(t, syscall.SIGTERM)

	b.up(t, "--host-kubeconfig", kubeconfig, "--platform-name", "a-mistake", "--space", "mistaken")
	logged := func(text string) {
		t.Helper()
		eventually(t, func() error {
			if !strings.Contains(b.log(t), text) {
				return fmt.Errorf("the log does not say %q", text)
			}
			return nil
		})
	}
	b.stop(t, syscall.SIGTERM)
	host.kubectl(t, "delete", "space", "given-up", "--wait=false")
	host.kubectl(t, "patch", "space", "given-up", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)

	b.up(t, args...)
	logged("Create its object again")
	if _, out, code := runBerth(t, "spaces", "given-up", "--data-dir", b.dir); code == 0 || !strings.Contains(out, "not found") {
		t.Errorf("a space without an object is served: %d, %s", code, out)
	}
	host.apply(t, spaceObject("given-up", `{platformName: careless}`))
	awaitReady(t, host, "given-up", "False OrphanedStore", "annotate this object with berth.dev/store=")
	_, command, _ := strings.Cut(readyOf(t, host, "given-up"), "annotate this object with ")
	annotation, _, _ := strings.Cut(command, ",")
	host.kubectl(t, "annotate", "space", "given-up", annotation)
	host.kubectl(t, "wait", "--for=condition=Ready", "space/given-up", "--timeout=180s")
	b.space(t, "given-up").kubectl(t, "get", "configmap", "kept")
	if now := b.space(t, "given-up").awaitRunning(t, "default", "stays"); now.UID != pod.UID {
		t.Error("its pods did not run on")
	}
	host.kubectl(t, "delete", "space", "given-up", "careful", "--wait", "--timeout=120s")
	for _, name := range []string{"given-up", "careful"} {
		if _, err := host.CoreV1().Namespaces().Get(t.Context(), "berth-"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the host namespace of %s: %v", name, err)
		}
	}
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--host-kubeconfig", kubeconfig, "--platform-name", "a-mistake", "--space", "mistaken")
	host.kubectl(t, "delete", "space", "mistaken", "--wait", "--timeout=120s")
}

// X6: an object that somebody else's finalizer holds back stays, and nothing of the space comes back.
func TestADeletionWithAnotherFinalizerEnds(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other")
	host := b.host(t)
	applySpace(t, host, "held-back", `{deletionPolicy: Retain}`)
	b.space(t, "held-back").kubectl(t, "create", "configmap", "kept")
	host.kubectl(t, "patch", "space", "held-back", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/other"}]`)
	host.kubectl(t, "delete", "space", "held-back", "--wait=false")
	retained := filepath.Join(b.dir, "retained", "held-back", "store.db")
	eventually(t, func() error {
		if got := host.kubectl(t, "get", "space", "held-back", "-o", "jsonpath={.metadata.finalizers}"); got != `["example.com/other"]` {
			return fmt.Errorf("the finalizers are %s", got)
		}
		_, err := os.Stat(retained)
		return err
	})
	before := must(os.Stat(retained))(t)
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "other")
	host = b.host(t)
	host.kubectl(t, "annotate", "space", "held-back", "a=b") // has it looked at again
	host.kubectl(t, "patch", "space", "held-back", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	awaitGone(t, "host namespace", host.CoreV1().Namespaces().Get, "berth-held-back")
	if after, err := os.Stat(retained); err != nil || !os.SameFile(before, after) {
		t.Errorf("the retained store is another: %v", err)
	}
	applySpace(t, host, "held-back", `{}`)
	b.space(t, "held-back").kubectl(t, "get", "configmap", "kept")
}

// T7: a space that was paused, and one whose spec means nothing, before they were ever started, are told so, and can be deleted.
func TestASpaceThatIsNeverStartedSaysWhy(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other", "--dedicated-max", "0")
	host := b.host(t)
	for name, want := range map[string]struct{ spec, says string }{
		"apart":   {`{isolation: Dedicated}`, "False Failed spec.isolation: 0 dedicated spaces exist, and --dedicated-max allows no more"},
		"paused":  {`{paused: true}`, "False Paused the space was paused before its first start"},
		"invalid": {`{snapshots: {to: "file:///backups"}}`, "False InvalidSpec spec.snapshots.to: Forbidden: the platform writes snapshots to no place"},
	} {
		host.apply(t, spaceObject(name, want.spec))
		awaitReady(t, host, name, want.says)
		if _, err := host.CoreV1().Namespaces().Get(t.Context(), "berth-"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s has a host namespace: %v", name, err)
		}
		host.kubectl(t, "delete", "space", name, "--wait", "--timeout=180s")
		if left := traces(t, host, b.dir, name); len(left) > 0 {
			t.Errorf("%s has left %q", name, left)
		}
	}
}

// T1, T7: two platforms share a host, each with spaces of its own; neither touches the other's, whatever they are named.
func TestPlatformsOfOneHostServeTheirOwnSpaces(t *testing.T) {
	t.Parallel()
	existing := sharedBerth(t)
	host := existing.host(t)
	kubeconfig := filepath.Join(existing.dir, "host.kubeconfig")
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.up(t, "--host-kubeconfig", kubeconfig, "--platform-name", "second", "--space", "of-second")
	if got := host.kubectl(t, "get", "space", "of-second", "-o", "jsonpath={.spec.platformName}"); got != "second" {
		t.Errorf("the space is of platform %q", got)
	}
	applySpace(t, host, "also-of-second", `{platformName: second}`)
	b.space(t, "also-of-second").kubectl(t, "get", "namespaces")
	for _, dir := range []string{existing.dir, b.dir} {
		for _, name := range []string{"demo", "also-of-second"} {
			_, err := os.Stat(filepath.Join(dir, "spaces", name))
			if own := (dir == existing.dir) == (name == "demo"); own != (err == nil) || !own && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("platform %s and space %s: %v", dir, name, err)
			}
		}
	}
	if _, out, code := runBerth(t, "delete", "demo", "--data-dir", b.dir); code == 0 || !strings.Contains(out, `"demo" not found`) {
		t.Errorf("it deletes another platform's space: %d, %s", code, out)
	}
	// One of the same name, by mistake: what is another store's is left alone.
	third := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(third.end)
	third.launch(t, "--host-kubeconfig", kubeconfig, "--platform-name", "second", "--space", "also-of-second,of-third")
	eventually(t, func() error {
		if out := third.output(); !strings.Contains(out, "Space of-third is ready") || !strings.Contains(out, "Space also-of-second does not start") ||
			!strings.Contains(out, "belongs to another store") {
			return fmt.Errorf("it says:\n%s", out)
		}
		return nil
	})
	b.space(t, "also-of-second").kubectl(t, "get", "namespaces")
	host.kubectl(t, "delete", "space", "of-third", "--wait", "--timeout=120s")
	third.stop(t, syscall.SIGTERM) // it would have its own space of the name once this one is gone
	host.kubectl(t, "delete", "space", "also-of-second", "of-second", "--wait", "--timeout=120s")
	for _, name := range []string{"of-third", "also-of-second", "of-second"} {
		if _, err := host.CoreV1().Namespaces().Get(context.Background(), "berth-"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the host namespace of %s: %v", name, err)
		}
	}
}
