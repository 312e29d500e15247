// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// U6: spaces show only what their tenants can use, however clients reach them, and the host shows all.
func (u *tenantURLs) showWhatTenantsCanUse(t *testing.T) {
	for how, space := range map[string]*cluster{
		"behind its space": u.solar, "by full paths": u.solar.fullPaths(t, "solar"), "in a process of its own": u.lunar,
	} {
		core := coreResources(t, space)
		for _, resource := range []string{"bindings", "componentstatuses", "nodes/proxy", "pods/binding"} {
			if _, ok := core[resource]; ok {
				t.Errorf("%s, a space shows %s", how, resource)
			}
		}
		if got := strings.Join(core["nodes"], " "); got != "get list watch" {
			t.Errorf("%s, nodes have the verbs %s", how, got)
		}
		if _, ok := core["pods/exec"]; !ok {
			t.Errorf("%s, a space lacks pods/exec: %v", how, core)
		}
		unserved(t, how, space.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/any/proxy/").Do(t.Context()).Error(), "nodes/proxy")
		unserved(t, how, space.CoreV1().RESTClient().Get().AbsPath("/api/v1/componentstatuses").Do(t.Context()).Error(), "componentstatuses")
	}
	shown := u.solar.kubectl(t, "api-resources", "--server", u.solar.endpoint(), "-o", "wide") // by short paths
	if !strings.Contains(shown, "tenantaccesses") || strings.Contains(shown, "componentstatuses") {
		t.Errorf("kubectl api-resources shows:\n%s", shown)
	}
	if out := u.solar.kubectl(t, "explain", "tenantaccess", "--server", u.solar.endpoint()); !strings.Contains(out, "access.berth.dev") {
		t.Errorf("kubectl explain shows:\n%s", out)
	}
	host := coreResources(t, u.hostAPI)
	if _, ok := host["componentstatuses"]; !ok || !slices.Contains(host["nodes"], "create") || !slices.Contains(host["pods/binding"], "create") {
		t.Errorf("the host shows %v", host)
	}
}

// coreResources returns what discovery says of the core group: the verbs of each resource.
func coreResources(t *testing.T, c *cluster) map[string]metav1.Verbs {
	t.Helper()
	verbs := map[string]metav1.Verbs{}
	for _, r := range must(c.Discovery().ServerResourcesForGroupVersion("v1"))(t).APIResources {
		verbs[r.Name] = r.Verbs
	}
	return verbs
}
