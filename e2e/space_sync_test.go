// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const policyAndBudget = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: least}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
`

// awaitPolicies waits until the host has as many network policies and disruption budgets that were synced from a space.
func awaitPolicies(t *testing.T, host *cluster, space string, policies, budgets int) {
	t.Helper()
	selected := metav1.ListOptions{LabelSelector: "berth.dev/namespace"}
	eventually(t, func() error {
		have := must(host.NetworkingV1().NetworkPolicies("berth-"+space).List(t.Context(), selected))(t)
		least := must(host.PolicyV1().PodDisruptionBudgets("berth-"+space).List(t.Context(), selected))(t)
		if len(have.Items) != policies || len(least.Items) != budgets {
			return fmt.Errorf("the host has %d policies and %d budgets of space %s, want %d and %d", len(have.Items), len(least.Items), space, policies, budgets)
		}
		return nil
	})
}

// T7, S1, M4: each space syncs what its spec says, within what the platform offers. A change takes effect in a space that runs or
// sleeps, and interrupts no other; what was on the host goes, and comes back.
func TestEachSpaceSyncsWhatItsSpecSays(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "usual", configured(t, `allowedSync: [{resource: poddisruptionbudgets, value: "on"}, {resource: nodes, value: all}]`))
	host, usual := b.host(t), b.space(t, "usual")
	applySpace(t, host, "own", `{sync: [{resource: networkpolicies, value: "off"}, {resource: poddisruptionbudgets, value: "on"}]}`)
	own := b.space(t, "own")
	for _, space := range []*cluster{usual, own} {
		space.apply(t, policyAndBudget)
	}
	uid := own.run(t, "default", newPod("web")).UID
	awaitPolicies(t, host, "usual", 1, 0)
	awaitPolicies(t, host, "own", 0, 1)
	if out, err := host.tryKubectl(t, "", "auth", "can-i", "create", "poddisruptionbudgets", "-n", "berth-usual", "--as=system:serviceaccount:berth-usual:berth-syncer"); err == nil {
		t.Errorf("the account of a space that syncs no budgets may create some: %s", out)
	}

	watch := must(usual.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	t.Run("a change takes effect while it runs", func(t *testing.T) {
		applySpace(t, host, "own", `{sync: [{resource: nodes, value: all}]}`)
		awaitPolicies(t, host, "own", 1, 0)
		eventually(t, func() error {
			if nodes := own.kubectl(t, "get", "nodes", "-o", "name"); nodes == "" {
				return errors.New("there are no nodes")
			}
			return nil
		})
		if nodes := usual.kubectl(t, "get", "nodes", "-o", "name"); nodes != "" {
			t.Errorf("another space has nodes: %s", nodes)
		}
		applySpace(t, host, "own", `{sync: [{resource: networkpolicies, value: "off"}]}`)
		awaitPolicies(t, host, "own", 0, 0)
		eventually(t, func() error {
			if nodes := own.kubectl(t, "get", "nodes", "-o", "name"); nodes != "" {
				return fmt.Errorf("it still has nodes: %s", nodes)
			}
			return nil
		})
		if now := own.awaitRunning(t, "default", "web"); now.UID != uid {
			t.Error("it has lost a pod")
		}
		usual.kubectl(t, "create", "configmap", "after")
		for event := range watch.ResultChan() {
			if o, ok := event.Object.(metav1.Object); ok && o.GetName() == "after" {
				return
			}
		}
		t.Error("a watch in another space was interrupted")
	})

	t.Run("a change takes effect while it sleeps", func(t *testing.T) {
		applySpace(t, host, "own", `{}`)
		awaitPolicies(t, host, "own", 1, 0)
		eventually(t, func() error {
			if _, out, code := runBerth(t, "sleep", "own", "--data-dir", b.dir); code != 0 {
				return errors.New(out)
			}
			return nil
		})
		host.apply(t, spaceObject("own", `{sync: [{resource: networkpolicies, value: "off"}, {resource: pods, value: off-and-delete-pods}]}`))
		awaitPolicies(t, host, "own", 0, 0)
		awaitGone(t, "host pod", host.CoreV1().Pods("berth-own").Get, "own--default--web")
	})

	t.Run("more than is offered is refused, and it goes on", func(t *testing.T) {
		host.apply(t, spaceObject("own", `{sync: [{resource: gateways, value: "on"}]}`))
		awaitReady(t, host, "own", "False InvalidSpec", "spec.sync[0].value: Forbidden: gateways=on: the platform offers gateways=off", "allowedSync")
		own.kubectl(t, "create", "configmap", "serves")
		awaitPolicies(t, host, "own", 0, 0)
		b.stop(t, syscall.SIGTERM)
		b.up(t, "--space", "usual", configured(t, `allowedSync: [{resource: poddisruptionbudgets, value: "on"}, {resource: nodes, value: all}]`))
		host, own = b.host(t), b.space(t, "own")
		own.kubectl(t, "get", "configmap", "serves")
		awaitPolicies(t, host, "own", 0, 0)
	})

	t.Run("so does a dedicated space", func(t *testing.T) {
		nodes := func() bool {
			_, err := host.tryKubectl(t, "", "auth", "can-i", "list", "nodes", "--as=system:serviceaccount:berth-own:berth-syncer")
			return err == nil
		}
		applySpace(t, host, "own", `{isolation: Dedicated, sync: [{resource: poddisruptionbudgets, value: "on"}]}`)
		awaitPolicies(t, host, "own", 1, 1)
		if nodes() {
			t.Error("its account may list the host's nodes, which the space does not see")
		}
		applySpace(t, host, "own", `{isolation: Dedicated, sync: [{resource: networkpolicies, value: "off"}, {resource: nodes, value: all}]}`)
		awaitPolicies(t, host, "own", 0, 0)
		if !nodes() {
			t.Error("its account may not list the host's nodes")
		}
		eventually(t, func() error {
			if out, err := own.tryKubectl(t, "", "get", "nodes", "-o", "name"); err != nil || !strings.Contains(out, "node/") {
				return errors.Join(errors.New("there are no nodes: "+out), err)
			}
			return nil
		})
	})
}
