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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// podsRelease is the namespace of a release of the chart on the shared berth's host, and what its platform is called.
const podsRelease = "podded"

// podProcess is what the pod of a dedicated space would run, with the files of its Secret and a directory of its own.
type podProcess struct {
	host          *cluster
	release       string // the namespace of the release
	space         string
	secret, data  string // directories
	at            []string
	running       *process
	configuration string
}

// run has the process run with what is in the Secret now, as a kubelet does.
func (p *podProcess) run(t *testing.T) {
	t.Helper()
	p.end()
	secret := await(t, p.host.CoreV1().Secrets(p.release).Get, "berth-"+p.space+"-dedicated", there)
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(p.secret, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.configuration = string(secret.Data["config.json"])
	p.running = spawn(t, "dedicated", "--config", filepath.Join(p.secret, "config.json"))
}

// runAgain has the process run with another configuration than before, as a StatefulSet does when that changes.
func (p *podProcess) runAgain(t *testing.T) {
	t.Helper()
	await(t, p.host.CoreV1().Secrets(p.release).Get, "berth-"+p.space+"-dedicated", func(secret *corev1.Secret) error {
		if string(secret.Data["config.json"]) == p.configuration {
			return errors.New("the configuration of the pod is the one before")
		}
		return nil
	})
	p.run(t)
}

func (p *podProcess) end() {
	if p.running != nil {
		_ = p.running.Kill()
		<-p.running.done
	}
}

// podRights gives a release of the chart its rights on the host. It returns the file with the template of pods, and the release's account.
func podRights(t *testing.T, host *cluster, release string, values ...string) (template string, account *cluster) {
	t.Helper()
	host.namespace(t, release)
	args := []string{"template", "berth", "../charts/berth", "--namespace", release, "--set", strings.Join(append(values, "platformName="+release, "crds.enabled=false"), ",")}
	for _, file := range []string{"serviceaccount", "clusterrole", "role", "admissionpolicy", "configmap"} {
		args = append(args, "--show-only", "templates/"+file+".yaml")
	}
	rights := helm(t, args...)
	host.apply(t, rights)
	t.Cleanup(func() { _, _ = host.tryKubectl(t, rights, "delete", "--ignore-not-found", "-f", "-") })
	template = filepath.Join(t.TempDir(), "dedicated.yaml")
	config := must(host.CoreV1().ConfigMaps(release).Get(t.Context(), "berth", metav1.GetOptions{}))(t)
	if err := os.WriteFile(template, []byte(config.Data["dedicated.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return template, host.account(t, release, "berth")
}

// S3, T9: under the rights of the chart, a dedicated space has a pod of its own, to which its store is moved, and from which it
// comes back. What the pod runs is run here, by what is in its Secret and over the network.
func TestADedicatedSpaceMovesToAPodAndBack(t *testing.T) {
	t.Parallel()
	existing := sharedBerth(t)
	host := existing.host(t)
	template, account := podRights(t, host, podsRelease)

	p := &podProcess{host: host, release: podsRelease, space: "moved", secret: t.TempDir(), data: t.TempDir(), at: []string{freeAddress(t), freeAddress(t)}}
	t.Cleanup(p.end)
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	listen := freeAddress(t) // the same after a restart, as a Service has it
	serve := func() {
		t.Helper()
		b.serve(t, "--data-dir", b.dir, "--listen", listen, "--host-kubeconfig", account.kubeconfig, "--space", "moved",
			"--platform-name", podsRelease, "--space-role", podsRelease+"-berth-space", "--idle-after", "0",
			"--dedicated-pods", template, "--dedicated-pods-at", strings.Join(append(p.at, p.data), ","))
	}
	serve()
	p.logIfFailed(t, b)
	awaitReady(t, host, "moved", "True")
	space := b.space(t, "moved")
	kept := must(space.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)
	before := space.run(t, "default", newPod("stays"))
	stored := filepath.Join(b.dir, "spaces", "moved", "store.db")
	checkKept := func(t *testing.T) {
		t.Helper()
		eventually(t, func() error {
			still, err := space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			if err == nil && still.UID != kept.UID {
				t.Errorf("the config map is another one")
			}
			return err
		})
	}
	checkHeld := func(t *testing.T) {
		t.Helper()
		checkKept(t)
		if now := space.awaitRunning(t, "default", "stays"); now.UID != before.UID {
			t.Errorf("the space has another pod")
		}
	}

	isolate := func(as string) {
		host.kubectl(t, "patch", "space", "moved", "--type", "merge", "--patch", `{"spec": {"isolation": "`+as+`"}}`)
	}
	isolate("Dedicated")
	b.crash(t) // at any point of the move
	serve()
	p.run(t)
	eventually(t, func() error {
		if _, err := os.Stat(stored); !os.IsNotExist(err) {
			return errors.New("the platform still has the store")
		}
		return nil
	})
	checkHeld(t)
	for path, file := range map[string]string{filepath.Join(p.data, "spaces", "moved", "store.db"): "the pod has no store", filepath.Join(b.dir, "spaces", "moved", "store-location.json"): "the platform does not know where the store is"} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	set := must(host.AppsV1().StatefulSets(podsRelease).Get(t.Context(), "berth-moved-dedicated", metav1.GetOptions{}))(t)
	pod := set.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.Containers[0].Resources.Limits.Memory().IsZero() || len(set.Spec.VolumeClaimTemplates) != 1 {
		t.Errorf("the pod is %s", string(must(yaml.Marshal(pod))(t)))
	}
	t.Run("runs what its tenant makes", func(t *testing.T) {
		space.kubectl(t, "create", "deployment", "web", "--image=nginx")
		space.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	})
	t.Run("is given the keys of its space alone", func(t *testing.T) { checkSecretOf(t, p) })
	t.Run("goes on while Berth does not run", func(t *testing.T) {
		b.crash(t)
		pods := metav1.ListOptions{LabelSelector: "app=web"}
		one := must(host.CoreV1().Pods("berth-moved").List(t.Context(), pods))(t).Items[0]
		if err := host.CoreV1().Pods("berth-moved").Delete(t.Context(), one.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			for _, now := range must(host.CoreV1().Pods("berth-moved").List(t.Context(), pods))(t).Items {
				if now.UID != one.UID && now.DeletionTimestamp == nil {
					return nil
				}
			}
			return errors.New("the Deployment has no new pod")
		})
		serve()
		checkHeld(t)
	})
	t.Run("goes on after a kill of its process", func(t *testing.T) {
		p.run(t)
		checkHeld(t)
	})
	t.Run("is copied and restored", func(t *testing.T) {
		bucket := "file://" + t.TempDir()
		berthDoes(t, "snapshot", "create", "moved", "--to", bucket, "--data-dir", b.dir)
		if err := space.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		berthDoes(t, "snapshot", "restore", "moved", "--from", bucket, "--data-dir", b.dir)
		checkHeld(t)
	})
	t.Run("takes new keys", func(t *testing.T) {
		berthDoes(t, "rotate", "moved", "--ca", "--data-dir", b.dir)
		space = b.space(t, "moved")
		checkHeld(t)
	})
	t.Run("changes its owners without another pod", func(t *testing.T) { checkOwnersInPod(t, b, p) })
	const untrusted = "annotate the Space with berth.dev/trust-dedicated=true"
	t.Run("stays in its pod until the admin trusts it, with the rest of the new spec", func(t *testing.T) {
		host.kubectl(t, "patch", "space", "moved", "--type", "merge", "--patch", `{"spec": {"isolation": "Shared", "quota": {"pods": "7"}}}`)
		p.runAgain(t)
		awaitReady(t, host, "moved", untrusted)
		eventually(t, func() error {
			quota := host.kubectl(t, "get", "resourcequota", "-n", "berth-moved", "-o", "jsonpath={.items[*].spec.hard.pods}")
			return expect("the quota of the host", strings.TrimSpace(quota), "7")
		})
		checkHeld(t)
		if _, err := os.Stat(stored); !os.IsNotExist(err) {
			t.Errorf("the platform has the store: %v", err)
		}
		now := host.kubectl(t, "get", "space", "moved", "-o", "jsonpath={.status.isolation} {.status.observedGeneration} {.metadata.generation}")
		if fields := strings.Fields(now); len(fields) != 3 || fields[0] != "Dedicated" || fields[1] == fields[2] {
			t.Errorf("isolation and generations: %s", now)
		}
	})
	t.Run("comes back", func(t *testing.T) {
		host.kubectl(t, "annotate", "space", "moved", "berth.dev/trust-dedicated=true")
		b.crash(t) // at any point of the way back
		serve()
		eventually(t, func() error {
			_, err := os.Stat(stored)
			return err
		})
		checkHeld(t)
		checkNoPod(t, host, p)
	})
	moveToPod := func(t *testing.T) {
		t.Helper()
		isolate("Dedicated")
		p.run(t)
		eventually(t, func() error {
			if _, err := os.Stat(stored); !os.IsNotExist(err) {
				return errors.New("the platform still has the store")
			}
			return nil
		})
	}
	t.Run("is retained, and not opened until the admin trusts it", func(t *testing.T) {
		moveToPod(t)
		checkHeld(t)
		host.kubectl(t, "patch", "space", "moved", "--type", "merge", "--patch", `{"spec": {"deletionPolicy": "Retain"}}`)
		host.kubectl(t, "delete", "space", "moved", "--wait=false")
		p.runAgain(t)
		host.kubectl(t, "wait", "--for=delete", "space/moved", "--timeout=120s")
		host.apply(t, spaceObject("moved", `{platformName: `+podsRelease+`}`))
		awaitReady(t, host, "moved", "False", untrusted)
		host.kubectl(t, "annotate", "space", "moved", "berth.dev/trust-dedicated=true")
		awaitReady(t, host, "moved", "True")
		space = b.space(t, "moved")
		checkKept(t)
	})
	t.Run("is deleted with its pod", func(t *testing.T) {
		moveToPod(t)
		checkKept(t)
		host.kubectl(t, "delete", "space", "moved", "--wait", "--timeout=120s")
		checkNoPod(t, host, p)
		if left := traces(t, host, b.dir, "moved"); len(left) > 0 {
			t.Errorf("it has left %q", left)
		}
	})
}

// checkOwnersInPod changes who owns the space. Its process follows, and knows the owners when it starts again.
func checkOwnersInPod(t *testing.T, b *berth, p *podProcess) {
	t.Helper()
	before := must(p.host.AppsV1().StatefulSets(podsRelease).Get(t.Context(), "berth-moved-dedicated", metav1.GetOptions{}))(t)
	space := b.space(t, "moved")
	changes := must(space.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer changes.Stop()
	ownersAre(t, p.host, "moved", "{kind: User, name: alice}")
	alice := b.issued(t, "moved", "--owner", "alice")
	owns := func() error {
		return alice.CoreV1().Secrets("kube-system").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a=b"})
	}
	eventually(t, owns)
	space.kubectl(t, "create", "configmap", "after")
	awaitConfigMap(t, changes.ResultChan(), "after")
	changes.Stop()
	after := must(p.host.AppsV1().StatefulSets(podsRelease).Get(t.Context(), "berth-moved-dedicated", metav1.GetOptions{}))(t)
	if after.UID != before.UID || after.Generation != before.Generation {
		t.Error("the pod would be replaced")
	}
	p.run(t)
	eventually(t, owns)
	ownersAre(t, p.host, "moved", "{kind: User, name: bob}")
	eventually(t, func() error {
		if _, err := whoAmI(t, alice); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("who was an owner gets %w", errors.Join(err, errors.New("want Unauthorized")))
		}
		return nil
	})
}

// checkNoPod waits until nothing is left of the pod of the space.
func checkNoPod(t *testing.T, host *cluster, p *podProcess) {
	t.Helper()
	name := "berth-" + p.space + "-dedicated"
	awaitGone(t, "the StatefulSet", host.AppsV1().StatefulSets(p.release).Get, name)
	awaitGone(t, "the Secret", host.CoreV1().Secrets(p.release).Get, name)
	awaitGone(t, "the Service", host.CoreV1().Services(p.release).Get, name)
}

// checkSecretOf checks what somebody finds who takes over the pod: no key of the platform's, and none of another space.
func checkSecretOf(t *testing.T, p *podProcess) {
	t.Helper()
	secret := must(p.host.CoreV1().Secrets(podsRelease).Get(t.Context(), "berth-moved-dedicated", metav1.GetOptions{}))(t)
	if secret.Type != "berth.dev/dedicated" || len(secret.Data) != 9 {
		t.Errorf("the Secret is of the type %s and has %d keys", secret.Type, len(secret.Data))
	}
	for name, data := range secret.Data {
		if strings.Contains(string(data), "PRIVATE KEY") != (name == "tls.key") {
			t.Errorf("%s holds a private key, or the key is missing", name)
		}
	}
	account := newCluster(t, filepath.Join(p.secret, "host.kubeconfig"))
	if _, err := account.CoreV1().Secrets(podsRelease).Get(t.Context(), "berth-moved-dedicated", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("its account reads Berth's namespace: %v", err)
	}
	must(account.CoreV1().Pods("berth-moved").List(t.Context(), metav1.ListOptions{}))(t)
}

func tailOf(text string) string {
	const most = 8 << 10
	return text[max(0, len(text)-most):]
}

// serve runs `berth serve`, and returns when it serves spaces.
func (b *berth) serve(t *testing.T, args ...string) {
	t.Helper()
	b.process = spawn(t, append([]string{"serve"}, args...)...)
	eventually(t, func() error {
		select {
		case <-b.done:
			t.Fatalf("berth serve ended: %v\n%s", b.state, b.output())
		default:
		}
		if !strings.Contains(b.stderr.String(), "Serving spaces") {
			return errors.New("berth serve does not serve yet")
		}
		return nil
	})
}

// logIfFailed shows what a platform, and the process in the place of its pod, printed last, beside the failure of a test.
func (p *podProcess) logIfFailed(t *testing.T, b *berth) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("berth serve printed:\n%s", tailOf(b.output()))
		if p.running != nil {
			t.Logf("what runs in place of the pod printed:\n%s", tailOf(p.running.output()))
		}
	})
}
