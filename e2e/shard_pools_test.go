// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// D6: shards of two minor versions of Kubernetes serve side by side. A space moves to the version that its spec names, and back, and its
// clients notice only the version. A label moves a space to a canary, and its removal moves it back.
func TestShardsServeTwoVersionsOfKubernetes(t *testing.T) {
	t.Parallel()
	const usual, older, canary = "usual", "older", "canary"
	s := startShardsWith(t, "pools", []string{usual},
		[]string{older, "--emulated-version", "1.36", "--shard-space-selector", v1alpha1.LabelKubernetesVersion + "=1.36"},
		[]string{canary, "--shard-space-selector", "stage=canary"})
	s.operate(t)
	for name, spec := range map[string]string{"pool-plain": "", "pool-pinned": "  kubernetesVersion: \"1.36\"\n", "pool-unserved": "  kubernetesVersion: \"1.30\"\n"} {
		s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata:\n  name: %s\nspec:\n  platformName: %s\n%s", name, s.platform, spec))
	}
	for name, shard := range map[string]string{"pool-plain": usual, "pool-pinned": older} {
		s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+name, "--timeout=90s")
		if is := s.shardOf(t, name); is != shard {
			t.Errorf("%s is on %s, want %s", name, is, shard)
		}
	}
	if list := s.berth(t, "shard", "list", "-o", "wide"); !strings.Contains(list, "v1.36") || !strings.Contains(list, "stage=canary") {
		t.Errorf("berth shard list printed:\n%s", list)
	}
	eventually(t, func() error {
		return expect("events", strings.Contains(s.host.kubectl(t, "get", "events", "--all-namespaces", "--field-selector=involvedObject.name=pool-unserved"), "spec.kubernetesVersion"), true)
	})

	service := s.service()
	pinned, plain := service.client(t, "pool-pinned"), service.client(t, "pool-plain")
	serves := func(client *cluster, minor string) {
		t.Helper()
		eventually(t, func() error { // a shard knows a new space a moment later
			info, err := client.Discovery().ServerVersion()
			if err != nil {
				return err
			}
			return expect("the version of the space", info.EmulationMinor, minor)
		})
	}
	serves(pinned, "36")
	serves(plain, "37")
	l, stop := loaded(t, []*cluster{pinned, plain})
	become := func(space, shard string, change ...string) {
		t.Helper()
		s.host.kubectl(t, append(change, "space", space)...)
		s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+shard, "space/"+space, "--timeout=180s")
	}
	version := func(minor string) []string {
		return []string{"patch", "--type=merge", "--patch", fmt.Sprintf(`{"spec":{"kubernetesVersion":"1.%s"}}`, minor)}
	}
	become("pool-pinned", usual, version("37")...)
	serves(pinned, "37")
	become("pool-pinned", older, version("36")...) // the rollback
	serves(pinned, "36")
	s.host.kubectl(t, "label", "space", "pool-plain", "stage=canary")
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+canary, "space/pool-plain", "--timeout=180s")
	s.host.kubectl(t, "label", "space", "pool-plain", "stage-")
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+usual, "space/pool-plain", "--timeout=180s")
	if out, stderr, code := runBerth(t, "space", "move", "pool-plain", "--to", canary, "--kubeconfig", s.kubeconfig); code == 0 || !strings.Contains(stderr, "stage=canary") {
		t.Errorf("a move to a shard of other spaces ends with %d: %s%s", code, out, stderr)
	}
	stop()
	l.check(t)
}
