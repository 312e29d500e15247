// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// snapshotted is what a space holds whose snapshot is taken.
const snapshotted = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
---
apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  containers: [{name: main, image: nginx, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: Secret
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`

// given is what a space handed out, and is known by.
type given struct {
	uid      string
	admin    *rest.Config
	tokens   map[string]string
	services map[string]corev1.ServiceSpec
	volume   string // on the host
	clientCA string
}

func giveOut(t *testing.T, c, host *cluster, name string) given {
	t.Helper()
	g := given{admin: c.config, services: map[string]corev1.ServiceSpec{}}
	eventually(t, func() error {
		ready, err := c.tryKubectl(t, "", "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
		if err == nil && strings.Trim(strings.ReplaceAll(ready, "Running", ""), " ") != "" || strings.Count(ready, "Running") != 3 {
			err = fmt.Errorf("pods are %s (%w)", ready, err)
		}
		return err
	})
	g.uid = string(must(c.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}))(t).UID)
	secret := await(t, c.CoreV1().Secrets("default").Get, "robot", func(s *corev1.Secret) error {
		if len(s.Data["token"]) == 0 {
			return errors.New("no token yet")
		}
		return nil
	})
	issued := must(c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	g.tokens = map[string]string{"in a secret": string(secret.Data["token"]), "requested": issued.Status.Token}
	for _, s := range must(c.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		g.services[s.Name] = s.Spec
	}
	for _, claim := range must(host.CoreV1().PersistentVolumeClaims("berth-"+name).List(t.Context(), metav1.ListOptions{}))(t).Items {
		g.volume += claim.Spec.VolumeName
	}
	published := await(t, c.CoreV1().ConfigMaps("kube-system").Get, "extension-apiserver-authentication", func(*corev1.ConfigMap) error { return nil })
	g.clientCA = published.Data["client-ca-file"]
	return g
}

// opens tells whether what was given out opens a space.
func (g given) opens(t *testing.T, space *rest.Config) map[string]error {
	t.Helper()
	configs := map[string]*rest.Config{"the admin's certificate": rest.CopyConfig(g.admin)}
	for name, token := range g.tokens {
		configs["the token "+name] = &rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: g.admin.CAData}}
	}
	results := map[string]error{}
	for name, config := range configs {
		config.Host = space.Host
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		results[name] = err
	}
	return results
}

// D2, T2: a snapshot becomes the space that it was, to which all that was given
// out still fits; or, beside it, a space of its own, to which none of it does.
func TestASnapshotIsRestoredInItsPlaceAndAsAnotherSpace(t *testing.T) {
	t.Parallel()
	b := start(t, "--snapshot-to", "file://"+filepath.Join(t.TempDir(), "bucket"))
	demo, host := b.demo(t), b.host(t)
	demo.apply(t, snapshotted)
	before := giveOut(t, demo, host, "demo")
	name := strings.TrimSuffix(strings.TrimPrefix(berthDoes(t, "snapshot", "create", "demo", "--data-dir", b.dir), "snapshot/"), " taken\n")
	demo.kubectl(t, "patch", "configmap", "settings", "-p", `{"data":{"colour":"red"}}`)
	demo.kubectl(t, "create", "deployment", "later", "--image=nginx")
	demo.kubectl(t, "rollout", "status", "deployment/later", "--timeout=90s")
	if list := berthDoes(t, "snapshot", "list", "--data-dir", b.dir); !strings.Contains(list, name) {
		t.Errorf("%s is not listed:\n%s", name, list)
	}

	berthDoes(t, "snapshot", "restore", name, "--as", "copy", "--data-dir", b.dir)
	other := b.space(t, "copy")
	after := giveOut(t, other, host, "copy")
	if colour := other.kubectl(t, "get", "configmap", "settings", "-o", "jsonpath={.data.colour}"); colour != "blue" {
		t.Errorf("the copy's settings are %s", colour)
	}
	if after.uid == before.uid {
		t.Error("both are known by one UID")
	}
	for what, err := range before.opens(t, other.config) {
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("%s opens the copy: %v", what, err)
		}
	}
	for what, err := range after.opens(t, demo.config) {
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("%s of the copy opens the one it was taken of: %v", what, err)
		}
	}
	for what, err := range after.opens(t, other.config) {
		if err != nil {
			t.Errorf("%s does not open its own: %v", what, err)
		}
	}
	if strings.Contains(after.clientCA, strings.TrimSpace(before.clientCA)) {
		t.Error("servers that extend the copy would trust clients of the other")
	}
	if after.volume == before.volume || after.volume == "" {
		t.Errorf("on the host both have volume %q", after.volume)
	}
	checkServices(t, host, before, after)
	other.kubectl(t, "create", "service", "clusterip", "another", "--tcp=80")
	other.kubectl(t, "delete", "pod", "alone", "--wait=false")
	eventually(t, func() error { return checkSynced(t, other, host, "copy", withReservations) })

	berthDoes(t, "snapshot", "restore", "demo", "--data-dir", b.dir)
	if colour := demo.kubectl(t, "get", "configmap", "settings", "-o", "jsonpath={.data.colour}"); colour != "blue" {
		t.Errorf("the settings are %s", colour)
	}
	for what, err := range before.opens(t, demo.config) {
		if err != nil {
			t.Errorf("after it was restored, %s does not open it: %v", what, err)
		}
	}
	if _, err := demo.AppsV1().Deployments("default").Get(t.Context(), "later", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came later is there: %v", err)
	}
	eventually(t, func() error { return checkSynced(t, demo, host, "demo", withReservations) })
	if again := giveOut(t, demo, host, "demo"); again.uid != before.uid || again.volume != before.volume || again.services["web"].ClusterIP != before.services["web"].ClusterIP {
		t.Errorf("it is another: %+v, was %+v", again, before)
	}
	checkPrivate(t, b.dir)
}

// checkServices: no address or port is both's, and what the space shows is what
// the host has.
func checkServices(t *testing.T, host *cluster, before, after given) {
	t.Helper()
	if len(after.services) != len(before.services) {
		t.Errorf("services are %d, were %d", len(after.services), len(before.services))
	}
	for name, spec := range after.services {
		was := before.services[name]
		if name == "headless" {
			if spec.ClusterIP != corev1.ClusterIPNone {
				t.Errorf("the headless service has %s", spec.ClusterIP)
			}
			continue
		}
		if spec.ClusterIP == "" || spec.ClusterIP == was.ClusterIP {
			t.Errorf("service %s has %q, the other's is %q", name, spec.ClusterIP, was.ClusterIP)
		}
		if port := spec.Ports[0].NodePort; name == "outside" && (port == 0 || port == was.Ports[0].NodePort) {
			t.Errorf("service %s has port %d, as the other", name, port)
		}
	}
	list := must(host.CoreV1().Services("berth-copy").List(t.Context(), metav1.ListOptions{}))(t)
	for _, s := range list.Items {
		virtual := s.Annotations["berth.dev/name"]
		if spec, ok := after.services[virtual]; ok && spec.ClusterIP != s.Spec.ClusterIP {
			t.Errorf("service %s has %s in the space and %s on the host", virtual, spec.ClusterIP, s.Spec.ClusterIP)
		}
	}
}

// berthDoes runs a berth command that must succeed, and returns its output.
func berthDoes(t *testing.T, args ...string) string {
	t.Helper()
	out, errors, code := runBerth(t, args...)
	if code != 0 {
		t.Fatalf("berth %s: %s", strings.Join(args, " "), errors)
	}
	return out
}

// checkPrivate: nobody else reads anything in a data directory.
func checkPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "spaces"), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && info.Mode().IsRegular() && !strings.HasSuffix(path, "-shm") && !strings.HasSuffix(path, "-wal") {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// D2, D1: a store that is damaged comes back from its newest snapshot: with
// berth running, which says that the space does not, and without.
func TestADamagedSpaceIsRestored(t *testing.T) {
	t.Parallel()
	bucket := "file://" + filepath.Join(t.TempDir(), "bucket")
	b := start(t, "--space", "demo,other")
	demo := b.demo(t)
	demo.kubectl(t, "create", "configmap", "precious", "--from-literal=a=b")
	berthDoes(t, "snapshot", "create", "demo", "--to", bucket, "--data-dir", b.dir)
	if _, errors, code := runBerth(t, "snapshot", "create", "demo", "--data-dir", b.dir); code == 0 || !strings.Contains(errors, "--snapshot-to") {
		t.Errorf("without a place to put it: %d %s", code, errors)
	}
	damage := func() {
		t.Helper()
		b.stop(t, os.Interrupt)
		if err := os.WriteFile(filepath.Join(b.dir, "spaces", "demo", "store.db"), []byte("no store"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		if _, err := b.demo(t).CoreV1().ConfigMaps("default").Get(t.Context(), "precious", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	damage()
	b.up(t, "--space", "other")
	berthDoes(t, "snapshot", "restore", "demo", "--from", bucket, "--data-dir", b.dir)
	check("restored while berth runs")
	damage()
	if list := berthDoes(t, "snapshot", "list", "--from", bucket, "--data-dir", b.dir); !strings.Contains(list, "demo/") {
		t.Errorf("without a berth: %s", list)
	}
	berthDoes(t, "snapshot", "restore", "demo", "--from", bucket, "--data-dir", b.dir)
	b.up(t)
	check("restored while none runs")
}
