// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// T9: by a switch, a space that takes more than its share of the process's memory becomes dedicated by itself, as soon as
// --dedicated-max allows it, also if Berth is killed meanwhile. It keeps its objects and pods, and goes back only when the admin
// says so. A space without the switch stays.
func TestASpaceThatOutgrowsItsShareBecomesDedicated(t *testing.T) {
	t.Parallel()
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	b.by = []string{"env", "GOMEMLIMIT=1GiB"}
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.up(t, "--dedicated", "other", "--dedicated-max", "1")
	host := b.host(t)
	applySpace(t, host, "grows", `{dedicateAfterSeconds: 3}`)
	applySpace(t, host, "stays", `{}`)
	pod := b.space(t, "grows").run(t, "default", newPod("runs"))
	await := func(space, share, isolation string) {
		t.Helper()
		eventually(t, func() error {
			got := host.kubectl(t, "get", "space", space, "-o", `jsonpath={.status.conditions[?(@.type=="WithinShare")].status} {.status.conditions[?(@.type=="WithinShare")].reason} {.spec.isolation} {.status.isolation}`)
			return expect("space "+space, strings.TrimSpace(got), strings.TrimSpace(share+" Shared "+isolation))
		})
	}
	await("grows", "True WithinShare", "Shared")

	for _, name := range []string{"grows", "stays"} {
		(&attacked{berth: b, attacker: b.space(t, name)}).fill(t, "default", 120)
	}
	await("grows", "False DedicatedLimit", "Shared")
	if message := host.kubectl(t, "get", "space", "grows", "-o", `jsonpath={.status.conditions[?(@.type=="WithinShare")].message}`); !strings.Contains(message, "--dedicated-max allows 1 dedicated spaces") {
		t.Errorf("the condition says %q", message)
	}
	await("stays", "", "Shared")

	b.crash(t)
	b.up(t, "--dedicated", "other", "--dedicated-max", "2")
	host = b.host(t)
	await("grows", "True Dedicated", "Dedicated")
	host.kubectl(t, "wait", "--for=condition=Ready", "space/grows", "--timeout=180s")
	if children := childrenOf(t, b.Pid); len(children) != 2 {
		t.Errorf("berth has the processes %v, want two", children)
	}
	eventually(t, func() error {
		if events := host.kubectl(t, "get", "events", "-n", "default"); !strings.Contains(events, "Outgrown") || !strings.Contains(events, "space/grows") {
			return fmt.Errorf("there is no event about it:\n%s", events)
		}
		return nil
	})
	grows := b.space(t, "grows")
	if now := grows.awaitRunning(t, "default", "runs"); now.UID != pod.UID {
		t.Error("the move has cost it a pod")
	}
	for i := range 120 { // a collection of them is more than one request may hold
		if err := grows.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprintf("large-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	b.crash(t)
	b.up(t, "--dedicated", "other", "--dedicated-max", "2")
	host = b.host(t)
	host.kubectl(t, "wait", "--for=condition=Ready", "space/grows", "--timeout=180s")
	await("grows", "True Dedicated", "Dedicated") // although it is small again
	await("stays", "", "Shared")

	applySpace(t, host, "grows", `{dedicateAfterSeconds: 0}`)
	await("grows", "", "Shared")
	if now := b.space(t, "grows").awaitRunning(t, "default", "runs"); now.UID != pod.UID {
		t.Error("the move back has cost it a pod")
	}
	if children := childrenOf(t, b.Pid); len(children) != 1 {
		t.Errorf("berth has the processes %v, want one", children)
	}
}
