// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// S5, N1: simulated nodes run nothing that could be read or entered. Whoever tries
// is told so, and not by the host's names; what real nodes answer, TestSpacesRunRealContainers asks.
func TestSimulatedNodesHaveNothingToRead(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	ns := demo.namespace(t, "streams")
	demo.run(t, ns, newPod("hollow"))
	for _, args := range [][]string{
		{"logs", "hollow"}, {"exec", "hollow", "--", "id"}, {"attach", "hollow"}, {"port-forward", "hollow", ":80"},
		{"get", "--raw", "/api/v1/namespaces/" + ns + "/pods/hollow:80/proxy/"},
	} {
		out, err := demo.tryKubectl(t, "", append([]string{"-n", ns}, args...)...)
		if err == nil || out == "" {
			t.Errorf("kubectl %v succeeds: %s", args, out)
		}
		for _, secret := range []string{"berth-demo", "demo--", "host-node", "192.0.2.", "berth-syncer"} {
			if strings.Contains(out, secret) {
				t.Errorf("kubectl %v tells of the host: %s", args, out)
			}
		}
	}
	if out, err := demo.tryKubectl(t, "", "-n", ns, "top", "pods"); err == nil || !strings.Contains(out, "Metrics API not available") {
		t.Errorf("kubectl top: %v: %s", err, out)
	}
}
