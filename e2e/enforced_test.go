// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// patchSpace changes the spec of a space, and waits until the space runs with it. patch is YAML.
func patchSpace(t *testing.T, host *cluster, name, patch string) {
	t.Helper()
	host.kubectl(t, "patch", "space", name, "--type", "merge", "--patch", patch)
	awaitApplied(t, host, name)
}

// awaitApplied waits until a space runs with its spec.
func awaitApplied(t *testing.T, host *cluster, name string) {
	t.Helper()
	eventually(t, func() error {
		generations := strings.Fields(host.kubectl(t, "get", "space", name, "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}"))
		if len(generations) != 2 || generations[0] != generations[1] {
			return fmt.Errorf("the generation of space %s, and the observed one, are %v", name, generations)
		}
		return nil
	})
}

// awaitNamespaces waits until the status of a space has these namespaces.
func awaitNamespaces(t *testing.T, host *cluster, name, want string) {
	t.Helper()
	eventually(t, func() error {
		return expect("the namespaces of space "+name, host.kubectl(t, "get", "space", name, "-o", "jsonpath={.status.namespaceCount} {.status.namespaces}"), want)
	})
}

// awaitConfigMap reads a watch until it has an object of that name. It fails if the watch ends before.
func awaitConfigMap(t *testing.T, from <-chan watch.Event, name string) {
	t.Helper()
	for event := range from {
		if o, ok := event.Object.(*corev1.ConfigMap); ok && o.Name == name {
			return
		}
	}
	t.Errorf("the watch ended before it had %s", name)
}

// giveTenant gives a space to the tenant solar, as an admin does. No operator writes the ledger of the tenant here. The space starts
// again, because from now on it is in the quota of the tenant.
func giveTenant(t *testing.T, host *cluster, space string) {
	t.Helper()
	host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: QuotaLedger, metadata: {name: solar}, spec: {limit: {pods: 20}}}`)
	patchSpace(t, host, space, `spec: {tenantName: solar}`)
	awaitReady(t, host, space, "True Running")
}

const twoOwners = `spec: {access: {owners: [{kind: User, name: alice}, {kind: Group, name: devs}]}, namespaces: {quota: 9, labels: {team: solar}}}`

// O1, O8, T8: who owns a space changes while it runs, and no client notices. A space that sleeps isn't woken, neither by the change nor
// by a new run of Berth. The status says which namespaces it has, also while it sleeps.
func TestOwnersChangeInPlace(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "solar")
	host, solar := b.host(t), b.space(t, "solar")
	giveTenant(t, host, "solar")
	changes := must(solar.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer changes.Stop()
	awaitNamespaces(t, host, "solar", "0 ")
	solar.namespace(t, "b-one")
	solar.namespace(t, "a-two")
	awaitNamespaces(t, host, "solar", `2 ["a-two","b-one"]`)

	patchSpace(t, host, "solar", twoOwners)
	patchSpace(t, host, "solar", `spec: {access: {cordoned: false, owners: [{kind: User, name: bob}]}}`)
	solar.kubectl(t, "create", "configmap", "after")
	awaitConfigMap(t, changes.ResultChan(), "after")
	changes.Stop()

	b.command(t, "sleep", "solar")
	patchSpace(t, host, "solar", `spec: {access: {owners: [{kind: User, name: carol}]}}`)
	awaitNamespaces(t, host, "solar", `2 ["a-two","b-one"]`)
	if state, _ := b.stateOf(t, "solar"); state != "Asleep" {
		t.Errorf("a change of owners woke the space: it is %s", state)
	}

	out, err := host.tryKubectl(t, "", "patch", "space", "solar", "--type", "merge", "--patch", `spec: {tenantName: lunar}`)
	if err == nil || !strings.Contains(out, "a space stays with its tenant") {
		t.Errorf("another tenant: %v: %s", err, out)
	}

	b.stop(t, os.Interrupt)
	b.up(t)
	host = b.host(t)
	awaitApplied(t, host, "solar")
	awaitNamespaces(t, host, "solar", `2 ["a-two","b-one"]`)
}

// O1, T9: the same holds for a space with a process of its own, which goes on; what it misses while it starts, it gets later.
func TestOwnersOfADedicatedSpaceChangeInPlace(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "", "--dedicated", "alone")
	b.awaitServed(t, "alone")
	host, alone := b.host(t), b.space(t, "alone")
	giveTenant(t, host, "alone")
	before := childrenOf(t, b.Pid)
	changes := must(alone.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer changes.Stop()
	patchSpace(t, host, "alone", twoOwners)
	alone.namespace(t, "one")
	awaitNamespaces(t, host, "alone", `1 ["one"]`)
	alone.kubectl(t, "create", "configmap", "after")
	awaitConfigMap(t, changes.ResultChan(), "after")
	changes.Stop()
	if after := childrenOf(t, b.Pid); len(before) != 1 || len(after) != 1 || before[0] != after[0] {
		t.Errorf("the processes were %v, and are %v", before, after)
	}

	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	patchSpace(t, host, "alone", `spec: {access: {owners: [{kind: User, name: bob}]}}`)
	awaitReady(t, host, "alone", "True Running")
	awaitNamespaces(t, host, "alone", `1 ["one"]`)
}
