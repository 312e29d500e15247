// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// certificatesRelease is the namespace of the release that the test of examples/cert-manager uses.
const certificatesRelease = "berth-certificates-test"

// secureSyncs gives a release the rights and the host the policies of all ResourceSyncs.
func (c *cluster) secureSyncs(t *testing.T, release string) {
	t.Helper()
	policy, stderr, code := runBerth(t, "sync-policy", "--host-kubeconfig", c.kubeconfig, "--space-role", release+"-berth-space")
	if code != 0 {
		t.Fatalf("berth sync-policy exits with %d: %s", code, stderr)
	}
	c.apply(t, policy)
}

// checkSyncPolicyOfFile checks that a file of ResourceSyncs has the policies that these have on the host.
func checkSyncPolicyOfFile(t *testing.T, host *cluster, file string, syncs ...string) {
	t.Helper()
	want, _, code := runBerth(t, append([]string{"sync-policy", "--host-kubeconfig", host.kubeconfig}, syncs...)...)
	got, stderr, codeOfFile := runBerth(t, "sync-policy", "--host-kubeconfig", host.kubeconfig, "-f", file)
	if code != 0 || codeOfFile != 0 || want != got {
		t.Errorf("berth sync-policy -f %s exits with %d: %s\nand prints:\n%s\nfor the host, it exits with %d, and prints:\n%s", file, codeOfFile, stderr, got, code, want)
	}
}

// removeSyncs removes what a release with tenants and ResourceSyncs leaves.
func removeSyncs(ctx context.Context, t *testing.T, host *cluster, release string, tenants []string, syncs ...string) {
	t.Helper()
	for _, tenant := range tenants {
		_, _ = host.runKubectl(ctx, "", "patch", "tenant", tenant, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	}
	commands := [][]string{{"delete", "resourcesyncs,crdshares,tenants,berthconfigurations", "--all", "--wait=false"}}
	for _, sync := range syncs {
		commands = append(commands, []string{"delete", "--ignore-not-found", "validatingadmissionpolicies,validatingadmissionpolicybindings", "berth-sync-" + sync},
			[]string{"delete", "--ignore-not-found", "clusterroles", release + "-berth-space-" + sync, release + "-berth-syncs-" + sync, release + "-berth-space-dedicated-" + sync, release + "-berth-space-dedicated-reader-" + sync})
	}
	for _, args := range commands {
		if out, err := host.runKubectl(ctx, "", args...); err != nil {
			t.Logf("%v: %v: %s", args, err, out)
		}
	}
}

// C6: examples/cert-manager does what its README says: the host's cert-manager issues a tenant's certificate, under the rights of the chart.
func TestCertificatesOfARealClusterReachSpacesInRealContainers(t *testing.T) {
	host, images := realCluster(t, envImage, envOperators)
	ownRelease(t, host, certificatesRelease, "certs", "default", "certs-alone")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		removeSyncs(ctx, t, host, certificatesRelease, []string{"certs", "default"}, "certificates.cert-manager.io", "clusterissuers.cert-manager.io")
		removeCertManager(ctx, t, host)
	})
	installCertManager(t, host, certManagerChart(t))
	helm(t, "install", "berth", "../charts/berth", "--namespace", certificatesRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", ofImage(images[0])+",storage.size=1Gi,service.type=NodePort,tenants.certs.quota.pods=5")
	host.apply(t, spaceObject("certs-alone", "{tenantName: certs, isolation: Dedicated}"))
	awaitReady(t, host, "certs", "True")
	awaitReady(t, host, "certs-alone", "True")
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]

	eventually(t, func() error { // cert-manager's webhook answers when it has its certificate
		out, err := host.tryKubectl(t, "", "apply", "-f", "../examples/cert-manager/")
		return withOutput(err, out)
	})
	eventually(t, func() error {
		out := host.kubectl(t, "get", "resourcesync", "certificates.cert-manager.io", "-o", "wide")
		if !strings.Contains(out, "berth sync-policy") {
			return fmt.Errorf("without the policy of the host, the sync is:\n%s", out)
		}
		return nil
	})
	checkSyncPolicyOfFile(t, host, "../examples/cert-manager/syncs.yaml", "clusterissuers.cert-manager.io", "certificates.cert-manager.io")
	host.secureSyncs(t, certificatesRelease)
	host.syncing(t, "certificates.cert-manager.io", "clusterissuers.cert-manager.io")

	for name, isolation := range map[string]string{"certs": "Shared", "certs-alone": "Dedicated"} {
		t.Run(isolation, func(t *testing.T) { checkIssued(t, host, reached(t, host, node, certificatesRelease, name), name) })
	}
}

// checkIssued has the cert-manager of the host issue a certificate of a space.
func checkIssued(t *testing.T, host, space *cluster, name string) {
	t.Helper()
	space.field(t, "shared", "{.metadata.name}", "clusterissuer", "shared")
	space.apply(t, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop, namespace: default}
spec: {secretName: shop-tls, dnsNames: [shop.example.com], issuerRef: {name: shared, kind: ClusterIssuer}}
`)
	space.kubectl(t, "wait", "--for=condition=Ready", "certificate/shop", "--timeout=120s")
	checkCertificate(t, space, "shop.example.com")

	space.apply(t, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: template, namespace: default}
spec: {secretName: t, dnsNames: [a.example.com], issuerRef: {name: shared, kind: ClusterIssuer}, secretTemplate: {labels: {a: b}}}
`)
	space.hasEvent(t, "Certificate", "template", "spec.secretTemplate: Forbidden: the platform does not sync this field")
	space.kubectl(t, "delete", "certificate", "shop")
	host.lacks(t, "certificate", name+"--default--shop", "-n", "berth-"+name)
	host.lacks(t, "secret", declaration.ReturnedName("certificates.cert-manager.io", translate.Space{Name: name}, "default", "shop-tls"), "-n", "berth-"+name)
}
