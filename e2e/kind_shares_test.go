// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// definitionsRelease is the namespace of the release that the test of shared definitions uses.
	definitionsRelease = "berth-definitions-test"

	healthChecks = "machinehealthchecks.cluster.x-k8s.io"

	// ownHealthChecks is a tenant's own definition of health checks, which knows one field.
	ownHealthChecks = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machinehealthchecks.cluster.x-k8s.io}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {plural: machinehealthchecks, singular: machinehealthcheck, kind: MachineHealthCheck}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
`
)

// C2-C5: a real cluster shares the definition of an operator that it runs, under the rights of the chart. The operator's webhook, a Service
// of the host, converts the objects of the space. The tenant and the admin switch, and nothing is lost.
func TestDefinitionsOfARealClusterAreShared(t *testing.T) {
	host, images := realCluster(t, envImage, envOperators)
	ownRelease(t, host, definitionsRelease, "lunar", "solar", "default")
	clusterAPIManifest := clusterAPI(t, host, clusterAPIAfter)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		removeSyncs(ctx, t, host, definitionsRelease, []string{"lunar", "solar", "default"})
		host.kubectlAfter(t, clusterAPIManifest, "delete", "--ignore-not-found", "-f", "-")
		removeCertManager(ctx, t, host)
	})
	installCertManager(t, host, certManagerChart(t))
	applyClusterAPI(t, host, clusterAPIAfter)
	helm(t, "install", "berth", "../charts/berth", "--namespace", definitionsRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", ofImage(images[0])+",storage.size=1Gi,service.type=NodePort,tenants.lunar.quota.pods=5,tenants.solar.quota.pods=5")
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	spaces := map[string]*cluster{}
	for _, name := range []string{"lunar", "solar"} {
		awaitReady(t, host, name, "True")
		spaces[name] = reached(t, host, node, definitionsRelease, name)
	}
	lunar, solar := spaces["lunar"], spaces["solar"]
	share := func(mode, tenant string) {
		t.Helper()
		host.apply(t, crdShare(healthChecks, fmt.Sprintf("{mode: %s, tenants: [{names: [%s]}]}", mode, tenant)))
		host.kubectl(t, "wait", "--for=condition=Ready", "crdshare/"+healthChecks, "--timeout=180s")
	}

	share("Optional", "lunar")
	lunar.hasHealthChecks(t, "")
	eventually(t, func() error {
		out, err := lunar.tryKubectl(t, fmt.Sprintf(healthCheck, "old"), "apply", "-f", "-")
		return withOutput(err, out)
	})
	checkSeconds(t, lunar)
	if out, err := solar.tryKubectl(t, "", "get", "machinehealthchecks"); err == nil || !strings.Contains(out, "doesn't have a resource type") {
		t.Errorf("the space of a tenant with which nothing is shared answers %v: %s", err, out)
	}
	if out := host.kubectl(t, "get", "machinehealthchecks", "-A", "-o", "name"); out != "" {
		t.Errorf("the host has the objects of a tenant: %s", out)
	}

	lunar.apply(t, ownHealthChecks)
	lunar.matches(t, healthChecks, "Local Optional LocalFirst")
	lunar.hasHealthChecks(t, "")
	lunar.apply(t, "{apiVersion: cluster.x-k8s.io/v1beta1, kind: MachineHealthCheck, metadata: {name: own}, spec: {color: red}}")
	share("Forced", "lunar")
	lunar.matches(t, healthChecks, "Shared Forced Forced")
	lunar.hasHealthChecks(t, "old")
	checkSeconds(t, lunar)
	if out, err := lunar.tryKubectl(t, ownHealthChecks, "apply", "-f", "-"); err == nil || !strings.Contains(out, "the platform forces its own CustomResourceDefinition "+healthChecks) {
		t.Errorf("a tenant changes a definition that is forced: %v: %s", err, out)
	}
	share("Optional", "solar")
	lunar.matches(t, healthChecks, "Local <none> OnlyLocal")
	lunar.hasHealthChecks(t, "own")
	lunar.field(t, "red", "{.spec.color}", "machinehealthchecks.v1beta1.cluster.x-k8s.io", "own") // kubectl remembers the version that the host prefers
	solar.hasHealthChecks(t, "")
}

// matches waits until the space says this about a definition, after its name.
func (c *cluster) matches(t *testing.T, definition, want string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "get", "crdmatches", definition, "--no-headers")
		if err != nil {
			return withOutput(err, out)
		}
		return expect("the definition in force", strings.Join(strings.Fields(out), " "), definition+" "+want)
	})
}

// hasHealthChecks waits until the space serves health checks, and lists these.
func (c *cluster) hasHealthChecks(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "get", "machinehealthchecks.v1beta1.cluster.x-k8s.io", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			return withOutput(err, out)
		}
		return expect("health checks", lastLine(out), want)
	})
}

// checkSeconds waits until the later version of a [healthCheck], which only the operator's webhook knows to make, is right.
func checkSeconds(t *testing.T, space *cluster) {
	t.Helper()
	eventually(t, func() error {
		out, err := space.tryKubectl(t, "", "get", "machinehealthchecks.v1beta2.cluster.x-k8s.io", "old", "-o", "jsonpath={.spec.checks.nodeStartupTimeoutSeconds}")
		if err != nil {
			return withOutput(err, out)
		}
		return expect("the seconds", out, "420")
	})
}
