// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// tenantsRelease is the namespace of the release of TestTenantsOnARealClusterByHelm.
	tenantsRelease = "berth-tenants-test"
	tenantCount    = 10
	// longestGap is how long a space's API may not answer while the one pod of Berth is replaced.
	longestGap = 90 * time.Second
)

func fleet(i int) string { return fmt.Sprintf("fleet-%d", i) }

// X1, X5, T1, T6: on a cluster with real containers, Helm installs Berth and ten tenants; an upgrade leaves what they run alone and
// their requests are answered; a tenant is uninstalled without a trace; and an uninstallation of Berth leaves what the docs say.
func TestTenantsOnARealClusterByHelm(t *testing.T) {
	host, images := realCluster(t, envImage, envTool)
	image, tool := images[0], images[1]
	ownTenants(t, host)
	values := []string{
		"../charts/berth", "--namespace", tenantsRelease, "--take-ownership", "--wait", "--timeout", "5m", "--set", ofImage(image) +
			",storage.size=2Gi,service.type=NodePort,networkPolicy.enabled=true,operator.replicas=2,configuration.tenantDefaults.namespaceQuota=5,tenants.fleet-values.owners[0].kind=User,tenants.fleet-values.owners[0].name=carol," + tenantsClients + "," + tenantsSystemUsers,
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantsRelease, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	must(host.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
	createClients(t, host, fleet(1))
	helm(t, append([]string{"install", "berth"}, values...)...)
	if out := helm(t, "test", "berth", "--namespace", tenantsRelease, "--logs", "--timeout", "6m"); !strings.Contains(out, "/readyz: ready") {
		t.Errorf("helm test says nothing of the operator:\n%s", out)
	}
	host.kubectl(t, "wait", "--for=condition=Ready", "tenant/fleet-values", "--timeout=120s")

	helmAll(t, 0, "install", "../charts/space", "--namespace", tenantsRelease, "--wait", "--timeout", "6m", "--set", "owners.alice.kind=User,hostNamespaces.labels.fleet=test")
	for i := range tenantCount {
		host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+fleet(i), "--timeout=120s")
	}
	if out := helm(t, "test", fleet(0), "--namespace", tenantsRelease, "--logs", "--timeout", "6m"); !strings.Contains(out, fleet(0)+": ready, Kubernetes v1.") {
		t.Errorf("helm test says nothing of the tenant:\n%s", out)
	}
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	var running []*corev1.Pod
	var spaces []*cluster
	pause := pauseImage(t, host)
	for i := range 3 {
		space := reached(t, host, node, tenantsRelease, fleet(i))
		must(space.CoreV1().Pods("default").Create(t.Context(), newPod("real", func(p *corev1.Pod) { p.Spec.Containers[0].Image = pause }), metav1.CreateOptions{}))(t)
		running = append(running, host.awaitRunning(t, "berth-"+fleet(i), fleet(i)+"--default--real"))
		spaces = append(spaces, space)
	}
	undisturbed := func() {
		t.Helper()
		for i, pod := range running {
			if still := host.awaitRunning(t, pod.Namespace, pod.Name); still.UID != pod.UID || still.Status.ContainerStatuses[0].RestartCount > 0 {
				t.Errorf("what %s runs was disturbed", fleet(i))
			}
		}
	}

	t.Run("the exec of a former owner ends", func(t *testing.T) {
		checkExecEnds(t, host, node, fleet(2), tool)
	})
	t.Run("what a user of another tenant runs in a pod ends with the grant", func(t *testing.T) {
		checkVisitor(t, spaces[2], fleet(1), "shell")
	})
	t.Run("system users use the host with their own rights, until they are users no longer", func(t *testing.T) {
		checkImpersonation(t, host, "users/olga", "users/rita", "groups/crew")
		shells := checkSystemUsers(t, host, spaces[2], "berth-"+fleet(2), fleet(2)+"--default--shell")
		removeOlga(t, host)
		// It takes time until the shells end.
		t.Run("an upgrade of the operator fails no request", func(t *testing.T) {
			stop := ask(t, spaces)
			helm(t, append([]string{"upgrade", "berth"}, append(values, "--set", "operator.podAnnotations.round=two")...)...)
			if failed, _ := stop(); failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			undisturbed()
		})
		for _, shell := range shells {
			shell.endsWithin(t, 2*testTimeout)
		}
	})
	t.Run("an upgrade of Berth leaves pods alone, and requests are answered again", func(t *testing.T) {
		stop := ask(t, spaces)
		helm(t, append([]string{"upgrade", "berth"}, append(values, "--set", "operator.podAnnotations.round=two,log.verbosity=1,clients.systemUsers=null,clients.systemGroups=null")...)...)
		eventually(t, func() error {
			_, err := spaces[0].CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
		failed, gap := stop()
		t.Logf("%d requests failed; a space did not answer for up to %s", failed, gap.Round(time.Millisecond))
		if gap > longestGap {
			t.Errorf("a space did not answer for %s", gap)
		}
		undisturbed()
		checkImpersonation(t, host)
		for i := range tenantCount {
			host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+fleet(i), "--timeout=120s")
		}
	})
	t.Run("a tenant is uninstalled without a trace, unless another is below it", func(t *testing.T) {
		helm(t, "install", "fleet-below", "../charts/space", "--namespace", tenantsRelease, "--wait", "--timeout", "6m", "--set", "parent="+fleet(9))
		eventually(t, func() error {
			return expect("the number of tenants below", host.kubectl(t, "get", "tenant", fleet(9), "-o", "jsonpath={.status.children}"), "1")
		})
		if out, err := tryHelm(t.Context(), "uninstall", fleet(9), "--namespace", tenantsRelease); err == nil {
			t.Errorf("a tenant with another below it is uninstalled:\n%s", out)
		}
		for _, tenant := range []string{"fleet-below", fleet(0)} {
			helm(t, "uninstall", tenant, "--namespace", tenantsRelease, "--wait", "--timeout", "6m")
		}
		awaitGone(t, "the namespace", host.CoreV1().Namespaces().Get, "berth-"+fleet(0))
		eventually(t, func() error {
			out := host.kubectl(t, "get", "tenants,spaces,all,pv,ns,clusterroles,clusterrolebindings,secrets,rolebindings", "-A", "-o", "name")
			for line := range strings.Lines(out) {
				if strings.Contains(line, fleet(0)) || strings.Contains(line, "fleet-below") {
					return errors.New("there is still " + line)
				}
			}
			return nil
		})
		running, spaces = running[1:], spaces[1:]
	})
	t.Run("uninstalled, it leaves tenants and what they run, and goes on when it is installed again", func(t *testing.T) {
		helm(t, "uninstall", "berth", "--namespace", tenantsRelease, "--wait", "--timeout", "6m")
		awaitGone(t, "Berth's pod", host.CoreV1().Pods(tenantsRelease).Get, "berth-0")
		for _, left := range []string{"deployments", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			if out := host.kubectl(t, "get", left, "-A", "-l", "app.kubernetes.io/instance=berth", "-o", "name"); out != "" {
				t.Errorf("uninstalling leaves %s", out)
			}
		}
		for _, kept := range []string{"crd/tenants.berth.dev", "crd/publications.berth.dev", "tenant/" + fleet(1), "space/" + fleet(1), "tenant/fleet-values"} {
			host.kubectl(t, "get", kept)
		}
		for _, pod := range running {
			if still := host.awaitRunning(t, pod.Namespace, pod.Name); still.UID != pod.UID {
				t.Errorf("%s went with the release", pod.Name)
			}
		}
		helm(t, append([]string{"install", "berth"}, values...)...)
		host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+fleet(1), "--timeout=120s")
		reached(t, host, node, tenantsRelease, fleet(1)).awaitRunning(t, "default", "real")
	})
	t.Run("the guide removes everything", func(t *testing.T) {
		helmAll(t, 1, "uninstall", "--namespace", tenantsRelease, "--ignore-not-found", "--wait", "--timeout", "6m")
		host.kubectl(t, "delete", "tenant", "fleet-values", fleet(9), "--ignore-not-found", "--wait", "--timeout=180s")
		helm(t, append([]string{"upgrade", "berth"}, append(values, "--set", "operator.enabled=false,tenants=null,configuration=null")...)...)
		host.kubectl(t, "delete", "space", "default", "--ignore-not-found", "--wait", "--timeout=180s")
		if out := host.kubectl(t, "get", "namespaces", "-l", "berth.dev/platform=berth,fleet=test", "-o", "name"); out != "" {
			t.Errorf("there is still %s", out)
		}
	})
}

// helmAll runs a command of Helm for all tenants from a number on, at the same time: each waits for its tenant.
func helmAll(t *testing.T, from int, command string, args ...string) {
	t.Helper()
	var group sync.WaitGroup
	failed := make([]error, tenantCount)
	for i := from; i < tenantCount; i++ {
		group.Go(func() {
			if out, err := tryHelm(t.Context(), append([]string{command, fleet(i)}, args...)...); err != nil {
				failed[i] = fmt.Errorf("helm %s %s: %w\n%s", command, fleet(i), err, out)
			}
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
}

// ask has requests be made to spaces until it is told to stop, and then returns how many failed, and for how long a space did not answer.
func ask(t *testing.T, spaces []*cluster) (stop func() (failed int, gap time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	failed, gap, asked := 0, time.Duration(0), 0
	for _, space := range spaces {
		group.Go(func() {
			ticker := time.NewTicker(200 * time.Millisecond)
			defer ticker.Stop()
			answered := time.Now()
			for {
				request, done := context.WithTimeout(ctx, 10*time.Second)
				_, err := space.CoreV1().Namespaces().Get(request, "default", metav1.GetOptions{})
				done()
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				asked++
				if err != nil {
					failed++
				} else {
					gap, answered = max(gap, time.Since(answered)), time.Now()
				}
				mu.Unlock()
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() (int, time.Duration) {
		cancel()
		group.Wait()
		if asked == 0 {
			t.Error("nothing was asked")
		}
		return failed, gap
	}
}

// ownTenants has the release of the test, and its tenants, be the test's own, as ownRelease has spaces.
func ownTenants(t *testing.T, host *cluster) {
	t.Helper()
	names := []string{"default", "fleet-values", "fleet-below"}
	for i := range tenantCount {
		names = append(names, fleet(i))
	}
	forget := func(ctx context.Context) {
		// Its policies and its operator keep tenants.
		if _, err := tryHelm(ctx, "uninstall", "berth", "--namespace", tenantsRelease, "--ignore-not-found", "--wait"); err != nil {
			t.Errorf("helm uninstall: %v", err)
		}
		for _, name := range append([]string{"system"}, names...) {
			_, _ = host.runKubectl(ctx, "", "delete", "tenant/"+name, "--ignore-not-found", "--wait=false")
			_, _ = host.runKubectl(ctx, "", "patch", "tenant/"+name, "--type", "merge", "--patch", `{"metadata":{"finalizers":null}}`)
		}
		_, _ = host.runKubectl(ctx, "", "delete", "berthconfiguration", "berth", "--ignore-not-found")
	}
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	forget(t.Context())
	t.Cleanup(func() { forget(context.WithoutCancel(t.Context())) })
	ownRelease(t, host, tenantsRelease, names...)
}
