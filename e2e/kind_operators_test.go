// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operatorsRelease is the namespace of the release that the test of operators uses.
const operatorsRelease = "berth-operators-test"

var spacesOfOperators = []string{"operators-a", "operators-b"}

const (
	// clusterAPIBefore and clusterAPIAfter are directories of hack/operators. The later one has other definitions of the same groups and
	// kinds, and converts between its versions and the earlier ones.
	clusterAPIBefore = "cluster-api-1.10"
	clusterAPIAfter  = "cluster-api-1.13"
)

// healthCheck is an object as the earlier Cluster API knows it. The later one has a number of seconds in the place of the duration.
const healthCheck = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {name: %[1]s, namespace: default}
spec:
  clusterName: %[1]s
  nodeStartupTimeout: 7m0s
  selector: {matchLabels: {nodes: %[1]s}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 300s}]
`

// issued is a certificate, and the authority that signs it.
const issued = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self, namespace: default}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop, namespace: default}
spec: {secretName: shop-tls, dnsNames: [%[1]s.example.com], issuerRef: {name: self}}
`

// C1: two spaces have different definitions of the same groups, kinds, and versions, with operators as their makers publish them. In one
// space, an operator is upgraded, whose webhook in the space then converts what was stored before. The other space and the host notice
// nothing.
func TestOperatorsOfTwoSpacesRunInRealContainers(t *testing.T) {
	host, images := realCluster(t, envImage, envOperators)
	ownRelease(t, host, operatorsRelease, spacesOfOperators...)
	helm(t, "install", "berth", "../charts/berth", "--namespace", operatorsRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", fmt.Sprintf("%s,operator.enabled=false,storage.size=1Gi,service.type=NodePort,spaces[0].name=%s,spaces[1].name=%s",
			ofImage(images[0]), spacesOfOperators[0], spacesOfOperators[1]))
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	a := reached(t, host, node, operatorsRelease, spacesOfOperators[0])
	b := reached(t, host, node, operatorsRelease, spacesOfOperators[1])

	chart := certManagerChart(t)
	for i, space := range []*cluster{a, b} {
		installCertManager(t, space, chart)
		applyClusterAPI(t, space, clusterAPIBefore)
		eventually(t, func() error { // webhooks answer when they have their certificates
			out, err := space.tryKubectl(t, fmt.Sprintf(issued, spacesOfOperators[i])+"---"+fmt.Sprintf(healthCheck, "old"), "apply", "-f", "-")
			return withOutput(err, out)
		})
	}
	for i, space := range []*cluster{a, b} {
		checkCertificate(t, space, spacesOfOperators[i]+".example.com")
	}
	before, objectBefore := definitionsOf(t, b), healthCheckOf(t, b)

	applyClusterAPI(t, a, clusterAPIAfter)
	t.Run("the operator that was upgraded converts what was stored before", func(t *testing.T) { checkConverts(t, a) })
	t.Run("the definitions and objects of the other space are as they were", func(t *testing.T) {
		for name, was := range before {
			if is := definitionsOf(t, b)[name]; is != was {
				t.Errorf("the CustomResourceDefinition %s was %v, and is %v", name, was, is)
			}
		}
		if is := healthCheckOf(t, b); is != objectBefore {
			t.Errorf("the object was\n%s\nand is\n%s", objectBefore, is)
		}
		if out, err := b.tryKubectl(t, "", "get", "machinehealthchecks.v1beta2.cluster.x-k8s.io"); err == nil {
			t.Errorf("it has a version that only the other space defines:\n%s", out)
		}
		b.apply(t, fmt.Sprintf(healthCheck, "new"))
		if out := b.kubectl(t, "get", "machinehealthchecks.v1beta1.cluster.x-k8s.io", "new", "-o", "jsonpath={.spec.maxUnhealthy}"); out != "100%" {
			t.Errorf("the webhook of its operator sets maxUnhealthy to %q, want 100%%", out)
		}
	})
	t.Run("the host has none of the definitions", func(t *testing.T) {
		out := host.kubectl(t, "get", "customresourcedefinitions", "-o", "name")
		for _, group := range []string{"cert-manager.io", "cluster.x-k8s.io"} {
			if strings.Contains(out, group) {
				t.Errorf("it has some of %s:\n%s", group, out)
			}
		}
	})
}

// lastLine is what kubectl prints of one field, after the warning that a version is deprecated.
func lastLine(out string) string { return out[strings.LastIndex(out, "\n")+1:] }

// withOutput adds to an error of a command what it printed.
func withOutput(err error, out string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, out)
}

// checkConverts waits until an upgraded Cluster API has stored all objects of earlier versions anew, and checks what spaces read.
func checkConverts(t *testing.T, space *cluster) {
	t.Helper()
	seconds := func(name string) error {
		out, err := space.tryKubectl(t, "", "get", "machinehealthchecks.v1beta2.cluster.x-k8s.io", name, "-o", "jsonpath={.spec.checks.nodeStartupTimeoutSeconds}")
		if err != nil {
			return withOutput(err, out)
		}
		return expect("the seconds", out, "420")
	}
	eventually(t, func() error { return seconds("old") })
	eventually(t, func() error {
		out, err := space.tryKubectl(t, fmt.Sprintf(healthCheck, "new"), "apply", "-f", "-")
		return withOutput(err, out)
	})
	if err := seconds("new"); err != nil {
		t.Error(err)
	}
	out := space.kubectl(t, "get", "machinehealthchecks.v1beta1.cluster.x-k8s.io", "old", "-o", "jsonpath={.spec.nodeStartupTimeout}")
	if lastLine(out) != "7m0s" {
		t.Errorf("by the earlier version, the duration is %q, want 7m0s", out)
	}
	eventually(t, func() error {
		out := space.kubectl(t, "get", "customresourcedefinition", "machinehealthchecks.cluster.x-k8s.io", "-o", "jsonpath={.status.storedVersions}")
		return expect("the stored versions", out, `["v1beta2"]`)
	})
}

// checkCertificate waits for the certificate that a space's cert-manager issues, and checks whose it is.
func checkCertificate(t *testing.T, space *cluster, dnsName string) {
	t.Helper()
	await(t, space.CoreV1().Secrets("default").Get, "shop-tls", func(secret *corev1.Secret) error {
		block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if block == nil {
			return errors.New("it has no certificate")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		return certificate.VerifyHostname(dnsName)
	})
}

// healthCheckOf returns what a space has of a health check, without what its own operator writes while it works.
func healthCheckOf(t *testing.T, space *cluster) string {
	t.Helper()
	return space.kubectl(t, "get", "machinehealthchecks.v1beta1.cluster.x-k8s.io", "old", "-o", "jsonpath={.apiVersion} {.metadata.uid} {.metadata.generation} {.spec}")
}

// definitionsOf returns what tells whether somebody else has changed a space's definitions of Cluster API, by name. The space's own
// operators write some of each definition at any time: cert-manager the certificate of the webhook, and Cluster API an annotation.
func definitionsOf(t *testing.T, space *cluster) map[string]string {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := json.Unmarshal([]byte(space.kubectl(t, "get", "customresourcedefinitions", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, crd := range list.Items {
		if strings.HasSuffix(crd.Spec.Group, "cluster.x-k8s.io") {
			if c := crd.Spec.Conversion; c != nil && c.Webhook != nil && c.Webhook.ClientConfig != nil {
				c.Webhook.ClientConfig.CABundle = nil
			}
			all[crd.Name] = fmt.Sprintf("%s, %x, stored as %v", crd.UID, sha256.Sum256(must(json.Marshal(crd.Spec))(t)), crd.Status.StoredVersions)
		}
	}
	if len(all) == 0 {
		t.Fatal("the space has no definitions of Cluster API")
	}
	return all
}

// operatorImage is the name of an image of hack/operators that nodes have.
func operatorImage(name string) string { return strings.Replace(os.Getenv(envOperators), "*", name, 1) }

// certManagerChart makes cert-manager's chart of its sources as its makers do: with a version, and its definitions among the templates.
func certManagerChart(t *testing.T) string {
	t.Helper()
	source, chart := moduleOf(t, "operators/cert-manager", "github.com/cert-manager/cert-manager"), filepath.Join(t.TempDir(), "cert-manager")
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(source, "deploy", "charts", "cert-manager"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(chart, "Chart.template.yaml"), filepath.Join(chart, "Chart.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, crd := range must(filepath.Glob(filepath.Join(source, "deploy", "crds", "*.yaml")))(t) {
		if err := os.WriteFile(filepath.Join(chart, "templates", filepath.Base(crd)), must(os.ReadFile(crd))(t), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chart
}

// installCertManager installs a chart of cert-manager in a space, or on the host.
func installCertManager(t *testing.T, in *cluster, chart string) {
	t.Helper()
	args := []string{"install", "cert-manager", chart, "--kubeconfig", in.kubeconfig, "--namespace", "cert-manager", "--create-namespace", "--wait", "--timeout", "4m",
		"--set", "startupapicheck.enabled=false,global.leaderElection.namespace=cert-manager"}
	for prefix, program := range map[string]string{"": "controller", "webhook.": "webhook", "cainjector.": "cainjector"} {
		image := operatorImage("cert-manager-" + program)
		colon := strings.LastIndex(image, ":")
		args = append(args, "--set", fmt.Sprintf("%[1]simage.repository=%[2]s,%[1]simage.tag=%[3]s,%[1]ssecurityContext.runAsUser=65532", prefix, image[:colon], image[colon+1:]))
	}
	helm(t, args...)
}

// removeCertManager removes what [installCertManager] installed on the host.
func removeCertManager(ctx context.Context, t *testing.T, host *cluster) {
	t.Helper()
	if out, err := tryHelm(ctx, "uninstall", "cert-manager", "--namespace", "cert-manager", "--kubeconfig", host.kubeconfig, "--wait"); err != nil {
		t.Errorf("uninstall cert-manager: %v: %s", err, out)
	}
	if out, err := host.runKubectl(ctx, "", "delete", "namespace", "cert-manager"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// withDefault is a variable of Cluster API's manifests, which its installer replaces by the default.
var withDefault = regexp.MustCompile(`\$\{[A-Z_]+:=([^}]*)\}`)

// applyClusterAPI has a space, or the host, run a version of Cluster API, and waits for it.
func applyClusterAPI(t *testing.T, in *cluster, version string) {
	t.Helper()
	manifest := clusterAPI(t, in, version)
	eventually(t, func() error { // cert-manager's webhook answers when it has its certificate
		out, err := in.tryKubectl(t, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		return withOutput(err, out)
	})
	in.kubectl(t, "rollout", "status", "deployment/capi-controller-manager", "--namespace", "capi-system", "--timeout", "6m")
}

// clusterAPI returns the manifest of a version of Cluster API, of the image that nodes have.
func clusterAPI(t *testing.T, in *cluster, version string) string {
	t.Helper()
	manifest := in.kubectl(t, "kustomize", filepath.Join(moduleOf(t, "operators/"+version, "sigs.k8s.io/cluster-api"), "config", "default"))
	manifest = withDefault.ReplaceAllString(manifest, "$1")
	manifest = imageOf.ReplaceAllString(manifest, "image: "+operatorImage(version+"-manager"))
	return strings.ReplaceAll(manifest, "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent")
}
