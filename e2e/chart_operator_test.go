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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// X1, T1, T6, H7: under exactly the rights that charts/berth gives it, the operator serves tenants that charts/space installs, and
// their uninstallation deletes them, unless others are below them.
func TestTenantsByHelmUnderTheRightsOfTheChart(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator=false")
	host := b.host(t)
	host.namespace(t, platform)
	rights := helm(t, "template", "berth", "../charts/berth", "--namespace", platform, "--show-only", "templates/definitions.yaml", "--show-only", "templates/operator-rights.yaml")
	if out, err := host.tryKubectl(t, rights, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	account := host.account(t, platform, "berth-operator")
	values := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(values, []byte(`{apiVersion: berth.dev/v1alpha1, kind: BerthConfiguration, metadata: {name: berth}, spec: {tenantDefaults: {quota: {pods: 7}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runBerth(t, "apply", "--host-kubeconfig", account.kubeconfig, values); code != 0 || out != "BerthConfiguration berth applied\n" {
		t.Fatalf("berth apply says %q%q and ends with %d", out, stderr, code)
	}
	metrics := freeAddress(t)
	operator := spawn(t, "operator", "--host-kubeconfig", account.kubeconfig, "--leader-elect", "--lease-namespace", platform, "--metrics-listen", metrics)
	t.Cleanup(func() {
		_ = operator.Kill()
		<-operator.done
		if out := operator.output(); t.Failed() {
			t.Logf("berth operator printed:\n%s", tailOf(out))
		} else if strings.Contains(out, "leases") && strings.Contains(out, "forbidden") {
			t.Errorf("it lacks a right:\n%s", out)
		}
	})
	if out, stderr, code := runBerth(t, "check", "--url", "http://"+metrics+"/readyz"); code != 0 {
		t.Fatalf("berth check says %q%q", out, stderr)
	}
	byHelm := func(args ...string) string { return helm(t, append(args, "--kubeconfig", host.kubeconfig)...) }
	ready := func(tenants ...string) {
		t.Helper()
		for _, tenant := range tenants {
			host.kubectl(t, "wait", "--for=condition=Ready", "tenant/"+tenant, "--timeout=180s")
		}
	}
	spec := func(space, path string) string {
		return host.kubectl(t, "get", "space", space, "-o", "jsonpath={.spec."+path+"}")
	}
	pods := func(tenant string) string { // the quota of all its spaces
		return host.kubectl(t, "get", "quotaledger", tenant, "-o", "jsonpath={.spec.limit.pods}")
	}
	awaitReady(t, host, "default", "True") // that of the default tenant

	byHelm("install", "solar", "../charts/space", "--set", "owners.alice.kind=User,space.limits.watches=300,test.namespace="+platform, "--wait", "--timeout", "2m")
	ready("solar")
	if got := spec("solar", "tenantName") + " " + spec("solar", "access.owners[0].name") + " " + spec("solar", "limits.watches") + " " + pods("solar"); got != "solar alice 300 7" {
		t.Errorf("the space of solar is %q", got)
	}
	byHelm("upgrade", "solar", "../charts/space", "--reuse-values", "--set", "owners.bob.kind=User,space.limits.watches=400,quota.pods=9,spaces.solar-b.quota.pods=5", "--wait", "--timeout", "2m")
	eventually(t, func() error {
		got := spec("solar", "access.owners[*].name") + " " + spec("solar", "limits.watches") + " " + pods("solar") + " " + spec("solar-b", "quota.pods") + " " + spec("solar-b", "access.owners[1].name")
		return expect("the spaces of solar", got, "alice bob 400 9 5 bob")
	})
	ready("solar")
	awaitReady(t, host, "solar-b", "True")

	// A tenant below it keeps it, with its spaces and their data.
	byHelm("install", "solar-dev", "../charts/space", "--set", "parent=solar,test.namespace="+platform, "--wait", "--timeout", "2m")
	ready("solar-dev")
	eventually(t, func() error {
		return expect("the number of tenants below solar", host.kubectl(t, "get", "tenant", "solar", "-o", "jsonpath={.status.children}"), "1")
	})
	if out, err := tryHelm(t.Context(), "uninstall", "solar", "--kubeconfig", host.kubeconfig); err == nil {
		t.Errorf("a tenant with another below it is uninstalled:\n%s", out)
	}
	if out, err := host.tryKubectl(t, "", "delete", "tenant", "solar", "--dry-run=server"); err == nil || !strings.Contains(out, "below it") {
		t.Errorf("the host says of its deletion: %v\n%s", err, out)
	}
	for _, space := range []string{"solar", "solar-b"} {
		if deleted := host.kubectl(t, "get", "space", space, "-o", "jsonpath={.metadata.deletionTimestamp}"); deleted != "" {
			t.Errorf("the space %s of a tenant that stays is deleted", space)
		}
	}
	if out, err := host.tryKubectl(t, "", "delete", "tenant", "default", "--wait=false"); err == nil || !strings.Contains(out, "always exists") {
		t.Errorf("the default tenant is deleted: %v\n%s", err, out)
	}

	byHelm("uninstall", "solar-dev", "--wait", "--timeout", "2m")
	eventually(t, func() error {
		if children := host.kubectl(t, "get", "tenant", "solar", "-o", "jsonpath={.status.children}"); children != "0" && children != "" {
			return fmt.Errorf("solar still has %s tenants below it", children)
		}
		return nil
	})
	byHelm("uninstall", "solar", "--ignore-not-found", "--wait", "--timeout", "2m")
	awaitGone(t, "the namespace", host.CoreV1().Namespaces().Get, "berth-solar")
	awaitGone(t, "the namespace", host.CoreV1().Namespaces().Get, "berth-solar-b")
	eventually(t, func() error {
		if out := host.kubectl(t, "get", "tenants,spaces,publications", "-o", "name"); strings.Contains(out, "solar") {
			return errors.New("there is still " + out)
		}
		return nil
	})
	if secrets := must(host.CoreV1().Secrets(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"}))(t); len(secrets.Items) > 0 {
		t.Errorf("Helm still has %d releases", len(secrets.Items))
	}
}
