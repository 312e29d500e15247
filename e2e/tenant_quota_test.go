// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// hostPods returns how many pods spaces have on the host.
func hostPods(t *testing.T, host *cluster, spaces ...string) (count int) {
	t.Helper()
	for _, space := range spaces {
		count += len(strings.Fields(host.kubectl(t, "get", "pods", "--namespace", "berth-"+space, "-o", "jsonpath={.items[*].metadata.name}")))
	}
	return count
}

// Q2, Q3, Q5: the quota of a tenant holds for all of its spaces and for the tenants below together: exactly as many pods run as it allows,
// whoever asks. What one tenant frees another one gets.
func TestQuotasHoldDownTheTree(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	for _, tenant := range [][2]string{
		{"acme", "{quota: {requests.cpu: 8, limits.cpu: 64}}"}, {"acme-a", "{parent: acme, quota: {requests.cpu: 6}}"}, {"acme-b", "{parent: acme, quota: {requests.cpu: 6}}"},
	} {
		host.apply(t, tenantObject(tenant[0], tenant[1]))
		awaitTenant(t, host, tenant[0])
	}
	a, c := b.space(t, "acme-a"), b.space(t, "acme-b")
	spaces := []string{"acme", "acme-a", "acme-b"}
	for _, space := range []*cluster{a, c} {
		space.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=0")
		space.kubectl(t, "set", "resources", "deployment", "web", "--requests=cpu=1", "--limits=cpu=1")
		space.kubectl(t, "scale", "deployment", "web", "--replicas=8")
	}
	all := func(want int) {
		t.Helper()
		eventually(t, func() error {
			return expect("pods on the host", fmt.Sprint(hostPods(t, host, spaces...)), fmt.Sprint(want))
		})
	}
	all(8)
	inSpace := func(space *cluster) int {
		return len(strings.Fields(space.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}")))
	}
	first, second := inSpace(a), inSpace(c)
	if first > 6 || second > 6 || first+second != 8 {
		t.Errorf("%d and %d pods in the spaces, want at most 6 each, and 8 together", first, second)
	}
	refusal := fmt.Sprintf("exceeded quota: tenant acme-a, requested: requests.cpu=1, used: requests.cpu=%d, limited: requests.cpu=6", first)
	if first < 6 { // what the tenants above and beside use is not said
		refusal += "; the tenants above leave no more of their quota"
	}
	if out, err := a.tryKubectl(t, "", "run", "one", "--image=nginx", "--overrides", `{"spec": {"containers": [{"name": "one", "image": "nginx", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}`); err == nil || !strings.Contains(out, "forbidden: ") || !strings.Contains(out, refusal) {
		t.Errorf("a pod beyond the quota: %s", out)
	}
	if first < 6 {
		eventually(t, func() error {
			if out := a.kubectl(t, "get", "events", "--field-selector", "reason=FailedCreate", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, refusal) {
				return fmt.Errorf("events %q, want %q", out, refusal)
			}
			return nil
		})
	}

	eventually(t, func() error { // H6, U8: limits are those of tenants and not the shares of the moment, and a tenant's use is that of all below
		return errors.Join(
			expect("use of acme", host.kubectl(t, "get", "tenant", "acme", "-o", "jsonpath={.status.summary.cpu}"), "8/64"),
			expect("use of acme-a", host.kubectl(t, "get", "tenant", "acme-a", "-o", "jsonpath={.status.summary.cpu}"), fmt.Sprintf("%d/64", first)),
			expect("use of the space acme-a", host.kubectl(t, "get", "space", "acme-a", "-o", `jsonpath={.status.usage.cpu} {.status.quota.hard.requests\.cpu}`), fmt.Sprintf("%d/64 6", first)),
		)
	})
	eventually(t, func() error {
		events := host.kubectl(t, "get", "events", "--namespace", "default", "--field-selector", "reason=QuotaExceeded", "-o", `jsonpath={range .items[*]}{.involvedObject.kind} {.message}{"\n"}{end}`)
		if !strings.Contains(events, "Space exceeded quota: tenant acme") || !strings.Contains(events, "requested: requests.cpu=1, used: requests.cpu=") || strings.Count(events, "\n") > 6 {
			return fmt.Errorf("events %q", events)
		}
		return nil
	})
	eventually(t, func() error { // H6: a tenant sees its own quota and use, and nothing of those above and beside it
		out := a.kubectl(t, "get", "tenantquotas")
		row := fmt.Sprintf(`(?m)^acme-a +requests.cpu +%d +6 +%d +6 *$`, first, first)
		if !strings.HasPrefix(out, "NAME") || !regexp.MustCompile(row).MatchString(out) || regexp.MustCompile(`(?m)^acme(-b)? `).MatchString(out) {
			return fmt.Errorf("quotas %s, want %s", out, row)
		}
		return expect("the quota as an object", a.kubectl(t, "get", "tenantquota", "acme-a", "-o", `jsonpath={.kind} {.status.tenant.hard.requests\.cpu} {.status.space.used.requests\.cpu}`), fmt.Sprintf("TenantQuota 6 %d", first))
	})
	for _, args := range [][]string{{"get", "tenantquota", "acme"}, {"delete", "tenantquota", "acme-a"}, {"label", "tenantquota", "acme-a", "a=b"}} {
		if out, err := a.tryKubectl(t, "", args...); err == nil {
			t.Errorf("%q: %s", args, out)
		}
	}
	a.kubectl(t, "scale", "deployment", "web", fmt.Sprintf("--replicas=%d", first-1))
	eventually(t, func() error {
		return expect("pods of the second space", fmt.Sprint(inSpace(c)), fmt.Sprint(min(6, second+1)))
	})
	all(first - 1 + min(6, second+1))

	b.crash(t)
	b.up(t, "--operator")
	host = b.host(t)
	all(first - 1 + min(6, second+1))
	checkDrift(t, b, host, a)
	b.stop(t, syscall.SIGTERM)
}

// checkDrift checks that the host counts again what it has counted wrongly of the space acme-a, and that a metric tells what it counts
// and the space doesn't have.
func checkDrift(t *testing.T, b *berth, host, space *cluster) {
	t.Helper()
	drift := func(want string) {
		t.Helper()
		eventually(t, func() error {
			_, text := fetch(t, b.socket(), "http://berth/metrics")
			return expect("drift", strings.Join(regexp.MustCompile(`(?m)^berth_space_quota_drift{.*pods.*$`).FindAllString(text, -1), "\n"), want)
		})
	}
	host.kubectl(t, "patch", "resourcequota", "berth", "--namespace=berth-acme-a", "--subresource=status", "--type=merge", "-p", `{"status": {"used": {"pods": "0"}}}`)
	eventually(t, func() error { // upstream's controller does so every 5 minutes
		space.kubectl(t, "get", "namespaces") // Berth compares what awake spaces use, and after a restart a space soon sleeps
		counted := host.kubectl(t, "get", "resourcequota", "berth", "--namespace=berth-acme-a", "-o", "jsonpath={.status.used.pods}")
		return expect("pods that the host counts", counted, fmt.Sprint(hostPods(t, host, "acme-a")))
	})
	space.kubectl(t, "scale", "deployment", "web", "--replicas=0")
	eventually(t, func() error { return expect("pods on the host", hostPods(t, host, "acme-a"), 0) })
	drift("")
	eventually(t, func() error { // what is deleted is counted again, without a pod that comes at that moment
		return expect("pods of the space's quota", host.kubectl(t, "get", "space", "acme-a", "-o", "jsonpath={.status.quota.used.pods}"), "0")
	})
	host.kubectl(t, "run", "stranger", "--namespace=berth-acme-a", "--image=nginx")
	drift(`berth_space_quota_drift{resource="pods",space="acme-a"} 1`)
	host.kubectl(t, "delete", "pod", "stranger", "--namespace=berth-acme-a", "--now")
	drift("")
}

// Q2, Q3: the process of a dedicated space asks for its share by way of the platform, is refused as any space, and tries again when
// another space frees something.
func TestDedicatedSpacesShareTheQuotaOfTheirTenant(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.apply(t, tenantObject("apart", "{quota: {pods: 4}, space: {isolation: Dedicated}}"))
	awaitTenant(t, host, "apart")
	host.apply(t, spaceObject("beside", "{tenantName: apart}"))
	host.kubectl(t, "wait", "--for=condition=Ready", "space/beside", "--timeout=180s")
	apart, beside := b.space(t, "apart"), b.space(t, "beside")
	for _, space := range []*cluster{apart, beside} {
		space.kubectl(t, "create", "deployment", "web", "--image=nginx", "--replicas=0")
	}
	count := func(apart, beside int) {
		t.Helper()
		eventually(t, func() error {
			return errors.Join(expect("pods of the dedicated space", hostPods(t, host, "apart"), apart), expect("pods of the other space", hostPods(t, host, "beside"), beside))
		})
	}
	beside.kubectl(t, "scale", "deployment", "web", "--replicas=2")
	count(0, 2)
	apart.kubectl(t, "scale", "deployment", "web", "--replicas=3")
	count(2, 2)
	eventually(t, func() error {
		out := apart.kubectl(t, "get", "events", "--field-selector", "reason=FailedCreate", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(out, "exceeded quota: tenant apart, requested: pods=1, used: pods=4, limited: pods=4") {
			return fmt.Errorf("events %q", out)
		}
		return nil
	})
	beside.kubectl(t, "scale", "deployment", "web", "--replicas=1")
	count(3, 1)
}
