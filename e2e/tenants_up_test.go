// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// T1, T3, T5, T6, U8: berth up serves Tenant objects. A tenant gets a space that works, and takes all of it along when it is deleted. The
// tenants that always exist can't be deleted.
func TestBerthUpServesTenants(t *testing.T) {
	b := start(t, "--operator")
	host := b.host(t)
	for _, name := range []string{"tenant/system", "tenant/default", "space/default"} {
		awaitObject(t, host, name)
	}
	host.kubectl(t, "wait", "--for=condition=Ready", "tenant/system", "tenant/default", "space/default", "--timeout=90s")
	if owner := host.kubectl(t, "get", "space", "default", "-o", "jsonpath={.spec.tenantName}"); owner != "default" {
		t.Errorf("the space default belongs to %q", owner)
	}
	if owner := host.kubectl(t, "get", "space", "demo", "-o", "jsonpath={.spec.tenantName}"); owner != "" {
		t.Errorf("the space demo belongs to %q", owner)
	}
	b.space(t, "default").kubectl(t, "get", "namespace", "default", "kube-system")
	for _, name := range []string{"system", "default"} {
		if out, err := host.tryKubectl(t, "", "delete", "tenant", name); err == nil || !strings.Contains(out+err.Error(), "the tenant "+name+" always exists") {
			t.Errorf("the deletion of %s: %s, %v", name, out, err)
		}
	}

	host.apply(t, `
apiVersion: berth.dev/v1alpha1
kind: Tenant
metadata:
  name: solar
spec:
  owners:
  - kind: User
    name: alice
  quota:
    pods: "20"
`)
	host.kubectl(t, "wait", "--for=condition=Ready", "tenant/solar", "--timeout=90s")
	fields := strings.Fields(strings.Split(host.kubectl(t, "get", "tnt", "solar", "--no-headers"), "\n")[0])
	if len(fields) < 4 || strings.Join(fields[:4], " ") != "solar Active 1/1 0" {
		t.Errorf("kubectl get prints %q", fields)
	}
	if quota := host.kubectl(t, "get", "quotaledger", "solar", "-o", "jsonpath={.spec.limit.pods}"); quota != "20" {
		t.Errorf("the quota of pods is %q", quota)
	}
	kubeconfig, _, code := runBerth(t, "kubeconfig", "solar", "--data-dir", b.dir)
	path := filepath.Join(t.TempDir(), "solar.kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil || code != 0 {
		t.Fatalf("berth kubeconfig ends with %d (%v)", code, err)
	}
	solar := newCluster(t, path)
	solar.kubectl(t, "create", "deployment", "web", "--image=nginx")
	solar.awaitPods(t, "default", "app=web", 1)
	solar.kubectl(t, "create", "namespace", "production")
	awaitUsage(t, b, "solar,pods,1,20,5,1", "solar,namespaces,1,,,1")

	solar.apply(t, database)
	eventually(t, func() error { // an admin can tell whose a volume is
		out := host.kubectl(t, "get", "persistentvolumes", "-L", "berth.dev/tenant,berth.dev/space", "-l", "berth.dev/space=solar", "--no-headers")
		if strings.Count(out, "solar   solar") != 2 {
			return fmt.Errorf("the volumes of the tenant are\n%s", out)
		}
		return nil
	})

	b.stop(t, syscall.SIGTERM)
	b.up(t, "--operator")
	host = b.host(t)
	host.kubectl(t, "delete", "tenant", "solar", "--wait", "--timeout=120s")
	if left := traces(t, host, b.dir, "solar"); len(left) > 0 {
		t.Errorf("it has left %q", left)
	}
	if out := host.kubectl(t, "get", "spaces", "-o", "name"); out != "space.berth.dev/default\nspace.berth.dev/demo" && out != "space.berth.dev/default\nspace.berth.dev/demo\n" {
		t.Errorf("the spaces are %q", out)
	}
}

// awaitUsage waits until berth usage prints lines for the tenant solar.
func awaitUsage(t *testing.T, b *berth, lines ...string) {
	t.Helper()
	eventually(t, func() error {
		out, problems, code := runBerth(t, "usage", "solar", "-o", "csv", "--data-dir", b.dir)
		if code != 0 {
			return fmt.Errorf("it ends with %d: %s", code, problems)
		}
		for _, line := range lines {
			if !strings.Contains(out, "\n"+line+"\n") {
				return fmt.Errorf("there is no line %q in\n%s", line, out)
			}
		}
		return nil
	})
	if out, problems, code := runBerth(t, "usage", "nobody", "--data-dir", b.dir); code != 1 || out != "" || !strings.Contains(problems, `"nobody" not found`) {
		t.Errorf("the usage of a tenant that doesn't exist: %d, %q, %q", code, out, problems)
	}
}
