// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// envDrivers is the name of the images of hack/drivers that the nodes of E2E_KUBECONFIG have, with a star for the program's, and envOperators
	// that of hack/operators.
	envDrivers, envOperators = "E2E_DRIVER_IMAGES", "E2E_OPERATOR_IMAGES"
	// controllersRelease is the namespace of the release that tests of the host's controllers share.
	controllersRelease = "berth-controllers-test"
	// exposedAddress is what the ingress controller says its address is.
	exposedAddress = "192.0.2.80"
)

var spacesOfControllers = []string{"controllers-a", "controllers-b"}

// shop is a service of a pod, which answers with its name.
const shop = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %[2]s, args: [serve, ":8080"], readinessProbe: {periodSeconds: 1, httpGet: {port: 8080}}}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080}]}
`

// S1, S2, M4: what the host's controllers do for spaces, with controllers that are
// real: those of hack/drivers, which are Traefik's and the CSI projects'.
func TestControllersOfARealClusterServeSpaces(t *testing.T) {
	host, images := realCluster(t, envImage, envTool, envDrivers)
	image, tool := images[0], images[1]
	ownRelease(t, host, controllersRelease, spacesOfControllers...)
	defineGateways(t, host, "standard")
	provideVolumes(t, host)
	install(t, host, "ingress-controller")
	helm(t, "install", "berth", "../charts/berth", "--namespace", controllersRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", fmt.Sprintf("%s,operator.enabled=false,storage.size=1Gi,service.type=NodePort,spaces[0].name=%s,spaces[1].name=%s,"+
			"sync.gateways=on,sync.httproutes=on,sync.gatewayclasses=berth.dev/show=true,"+
			"sync.volumesnapshots=on,sync.volumesnapshotclasses=berth.dev/show=true",
			ofImage(image), spacesOfControllers[0], spacesOfControllers[1]))
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	d := &controllersTest{
		host: host, a: reached(t, host, node, controllersRelease, spacesOfControllers[0]), b: reached(t, host, node, controllersRelease, spacesOfControllers[1]),
		tool: tool, ports: map[string]string{},
	}
	for _, port := range must(host.CoreV1().Services("ingress-controller").Get(t.Context(), "ingress-controller", metav1.GetOptions{}))(t).Spec.Ports {
		d.ports[port.Name] = net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(int(port.NodePort)))
	}
	for _, space := range []*cluster{d.a, d.b} {
		for _, name := range []string{"shop", "blog"} {
			space.apply(t, fmt.Sprintf(shop, name, tool))
		}
	}
	t.Run("network policies let in the controller that the admin names", d.isolation)
	t.Run("an ingress leads to its space's pods, by host and path", d.ingress)
	t.Run("an ingress is served with its own certificate", d.certificate)
	t.Run("a host name is its first claimant's", d.claims)
	t.Run("a tenant's policy has the last word about who enters", d.policy)
	t.Run("a gateway and its route lead to their space's pods", d.gateway)
	t.Run("a gateway's host name is its first claimant's", d.gatewayClaims)
	t.Run("a gateway says what it lacks, and serves once it is there", d.routeFollows)
	t.Run("a claim is copied, and made again of its snapshot", d.snapshots)
	t.Run("a claim grows, and goes with its volume", d.resizing)
}

var imageOf = regexp.MustCompile(`image: (\S+)`)

// install has a driver run, as an admin would, until the test ends, with these arguments besides its others.
func install(t *testing.T, host *cluster, driver string, args ...string) {
	t.Helper()
	manifest := imageOf.ReplaceAllStringFunc(string(must(os.ReadFile("../hack/drivers/manifests/"+driver+".yaml"))(t)), func(image string) string {
		return "image: " + strings.Replace(os.Getenv(envDrivers), "*", strings.TrimPrefix(image, "image: "), 1)
	})
	for _, arg := range args {
		manifest = strings.Replace(manifest, "args: [", "args: ["+arg+", ", 1)
	}
	t.Cleanup(func() {
		record(context.WithoutCancel(t.Context()), t, host, driver)
		host.kubectlAfter(t, manifest, "delete", "--ignore-not-found", "-f", "-")
	})
	host.apply(t, manifest)
	host.kubectl(t, "rollout", "status", "deployment/"+driver, "--namespace", driver, "--timeout", "90s")
}

// kubectlAfter is for what is cleaned up when the test is over.
func (c *cluster) kubectlAfter(t *testing.T, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*testTimeout)
	defer cancel()
	if out, err := c.runKubectl(ctx, stdin, args...); err != nil {
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

type controllersTest struct {
	host, a, b *cluster
	tool       string
	ports      map[string]string // addresses, by the names of the ingress controller's ports
}

// asks is what the ingress controller answers to a request for a host and path; with roots, by TLS.
func (d *controllersTest) asks(t *testing.T, at string, roots *x509.CertPool) (status int, body string, err error) {
	t.Helper()
	scheme, address := "http", d.ports["web"]
	if roots != nil {
		scheme, address = "https", d.ports["websecure"]
	}
	transport := &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+at, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 3 * time.Second}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// leads returns once the ingress controller leads to a pod of that name.
func (d *controllersTest) leads(t *testing.T, at string, roots *x509.CertPool, to string) {
	t.Helper()
	eventually(t, func() error {
		status, body, err := d.asks(t, at, roots)
		if err != nil || status != http.StatusOK || !strings.HasPrefix(body, to+" serves ") {
			return fmt.Errorf("%s answers %d %q (%w), want a page of %s", at, status, body, err, to)
		}
		return nil
	})
}

// ingressOf is an ingress for a host, with paths that lead to services of their names.
func ingressOf(name, host, secret string, paths ...string) *networkingv1.Ingress {
	class, prefix := "shared", networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressSpec{
		IngressClassName: &class, Rules: []networkingv1.IngressRule{{Host: host}},
	}}
	http := &networkingv1.HTTPIngressRuleValue{}
	for _, path := range paths {
		http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Path: "/" + path, PathType: &prefix, Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: path, Port: networkingv1.ServiceBackendPort{Number: 80}},
		}})
	}
	ingress.Spec.Rules[0].HTTP = http
	if secret != "" {
		ingress.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: secret}}
	}
	return ingress
}

func (c *cluster) makeIngress(t *testing.T, ingress *networkingv1.Ingress) *networkingv1.Ingress {
	t.Helper()
	await(t, c.NetworkingV1().IngressClasses().Get, *ingress.Spec.IngressClassName, there)
	return must(c.NetworkingV1().Ingresses("default").Create(t.Context(), ingress, metav1.CreateOptions{}))(t)
}

// isolation: the controller's pods have addresses that the network policies close,
// until the admin labels its namespace.
func (d *controllersTest) isolation(t *testing.T) {
	d.a.makeIngress(t, ingressOf("shop", "a.example.com", "", "shop", "blog"))
	d.a.awaitRunning(t, "default", "shop")
	d.closed(t, "a.example.com/shop")
	label := []byte(`{"metadata":{"labels":{"berth.dev/reaches-pods":"true"}}}`)
	must(d.host.CoreV1().Namespaces().Patch(t.Context(), "ingress-controller", types.MergePatchType, label, metav1.PatchOptions{}))(t)
	d.leads(t, "a.example.com/shop", nil, "shop")
}

// closed returns once the ingress controller knows where to lead, and gets no answer there: not
// where it has nowhere to lead to yet, which it would say itself.
func (d *controllersTest) closed(t *testing.T, at string) {
	t.Helper()
	eventually(t, func() error {
		status, body, err := d.asks(t, at, nil)
		if status != http.StatusBadGateway && !os.IsTimeout(err) {
			return fmt.Errorf("%s answers %d %q (%w), want that its pods are closed to the controller", at, status, body, err)
		}
		return nil
	})
}

func (d *controllersTest) ingress(t *testing.T) {
	d.leads(t, "a.example.com/shop/window", nil, "shop")
	d.leads(t, "a.example.com/blog", nil, "blog")
	for _, at := range []string{"a.example.com/", "a.example.com/shopping", "b.example.com/shop"} {
		if status, body, err := d.asks(t, at, nil); err != nil || status != http.StatusNotFound {
			t.Errorf("%s answers %d %q (%v), want 404", at, status, body, err)
		}
	}
	seen := await(t, d.a.NetworkingV1().Ingresses("default").Get, "shop", func(i *networkingv1.Ingress) error {
		if len(i.Status.LoadBalancer.Ingress) != 1 || i.Status.LoadBalancer.Ingress[0].IP != exposedAddress {
			return fmt.Errorf("its status is %+v, want the controller's address", i.Status)
		}
		return nil
	})
	if out := d.a.kubectl(t, "get", "ingress", seen.Name); !strings.Contains(out, exposedAddress) {
		t.Errorf("kubectl shows:\n%s", out)
	}
}

func (d *controllersTest) certificate(t *testing.T) {
	roots := d.a.makeCertificate(t, "secure", "secure.example.com")
	d.a.makeIngress(t, ingressOf("secure", "secure.example.com", "secure", "shop"))
	d.leads(t, "secure.example.com/shop", roots, "shop")
	// A certificate that is renewed is the one that is served.
	if err := d.a.CoreV1().Secrets("default").Delete(t.Context(), "secure", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	renewed := d.a.makeCertificate(t, "secure", "secure.example.com")
	d.leads(t, "secure.example.com/shop", renewed, "shop")
	if _, _, err := d.asks(t, "secure.example.com/shop", roots); err == nil {
		t.Error("the old certificate is still served")
	}
}

// claims: who comes second gets nothing of what is asked for there, and takes over
// when the first has gone.
func (d *controllersTest) claims(t *testing.T) {
	if err := d.b.CoreV1().Pods("default").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.b.apply(t, strings.Replace(fmt.Sprintf(shop, "thief", d.tool), "{app: thief}", "{app: shop}", 1)) // of b's service shop
	d.b.awaitRunning(t, "default", "thief")
	d.b.makeIngress(t, ingressOf("shop", "a.example.com", "", "shop"))
	event := d.b.awaitEvent(t, "default", "Ingress", "shop", "SpaceForbids")
	if !strings.Contains(event.Message, "the host name a.example.com is in use outside of this space") {
		t.Errorf("the event says %q", event.Message)
	}
	for range 20 {
		if _, body, err := d.asks(t, "a.example.com/shop", nil); err != nil || !strings.HasPrefix(body, "shop serves ") {
			t.Fatalf("the host name's owner is not who answers: %q (%v)", body, err)
		}
	}
	if taken := must(d.b.NetworkingV1().Ingresses("default").Get(t.Context(), "shop", metav1.GetOptions{}))(t); len(taken.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("the second's status is %+v", taken.Status)
	}
	if err := d.a.NetworkingV1().Ingresses("default").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.leads(t, "a.example.com/shop", nil, "thief")
}

// policy: a tenant closes its pods, to the controller as well, and opens them.
func (d *controllersTest) policy(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "blog"}},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	}}
	policies := d.b.NetworkingV1().NetworkPolicies("default")
	must(policies.Create(t.Context(), policy, metav1.CreateOptions{}))(t)
	host := must(d.host.CoreV1().Pods("berth-"+spacesOfControllers[1]).Get(t.Context(), spacesOfControllers[1]+"--default--blog", metav1.GetOptions{}))(t)
	await(t, d.host.CoreV1().Pods(host.Namespace).Get, host.Name, func(p *corev1.Pod) error {
		return expect("whether a policy is about the pod", p.Labels["berth.dev/policed-ingress"], "true")
	})
	d.b.makeIngress(t, ingressOf("blog", "blog.example.com", "", "blog"))
	d.closed(t, "blog.example.com/blog")
	opened := []byte(`{"spec":{"ingress":[{}]}}`)
	must(policies.Patch(t.Context(), "closed", types.MergePatchType, opened, metav1.PatchOptions{}))(t)
	d.leads(t, "blog.example.com/blog", nil, "blog")
}

// makeCertificate makes a secret with a certificate for host names, which signs
// itself, and returns who trusts it.
func (c *cluster) makeCertificate(t *testing.T, name string, hosts ...string) *x509.CertPool {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{Organization: []string{name}}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       certificate,
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)}),
	}}
	must(c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}
