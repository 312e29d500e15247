// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/vcluster"
)

// T2
func TestTwoSpacesSeeNothingOfEachOther(t *testing.T) {
	gateway := newTestGateway(t)
	one := gateway.start(t, gateway.config(t, "one"))
	two := gateway.start(t, gateway.config(t, "two"))
	clients := map[string]*vcluster.ControlPlane{"one": one, "two": two}
	for name, p := range clients {
		client := clientset(t, admin(t, p))
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// The same name twice is two objects.
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "same"}, Data: map[string]string{"of": name},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	uids := map[string]bool{}
	for name, other := range map[string]string{"one": "two", "two": "one"} {
		client := clientset(t, admin(t, clients[name]))
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "of-"+other, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s sees a namespace of %s: %v", name, other, err)
		}
		same, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "same", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if same.Data["of"] != name {
			t.Errorf("%s reads %q", name, same.Data["of"])
		}
		uids[string(same.UID)] = true
		for _, doc := range everything(t, clients[name]) {
			if bytes.Contains(doc, []byte("of-"+other)) {
				t.Errorf("%s holds a trace of %s: %s", name, other, doc)
			}
		}
	}
	if len(uids) != 2 {
		t.Error("objects of two spaces have one UID")
	}
}

// N1: no object of a fresh space, and nothing that it tells anybody, names the
// machine.
func TestAFreshSpaceDoesNotNameTheMachine(t *testing.T) {
	c := config(t, "machine")
	c.Endpoint = "https://berth.example:7443/spaces/machine"
	p := start(t, c)
	eventually(t, func() error { // what comes last of what a start makes
		_, err := clientset(t, p.Loopback()).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err
	})
	docs := everything(t, p)
	for _, path := range []string{"/api", "/apis", "/version", "/.well-known/openid-configuration", "/openid/v1/jwks", "/readyz?verbose", "/livez?verbose"} {
		docs = append(docs, get(t, p, path))
	}
	// S6: pods read the keys where the issuer is, which they know.
	if discovery := get(t, p, "/.well-known/openid-configuration"); !bytes.Contains(discovery, []byte(`"jwks_uri":"https://kubernetes.default.svc.cluster.local/spaces/machine/openid/v1/jwks"`)) {
		t.Errorf("the issuer's keys are said to be elsewhere: %s", discovery)
	}
	names := machineNames(t)
	for _, doc := range docs {
		if name := names.Find(doc); name != nil {
			t.Errorf("%q is in %s", name, doc)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if label := []byte(`{"kubernetes.io/hostname":"` + host + `"}`); !names.Match(label) {
		t.Errorf("%s is not found in %s", names, label)
	}
	leases, err := clientset(t, p.Loopback()).CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) != 0 {
		t.Errorf("leases of the control plane itself: %v", leases.Items)
	}
}

func TestEachNamespaceHoldsTheCAOfTheEndpoint(t *testing.T) {
	c := config(t, "ca")
	p := start(t, c)
	for _, namespace := range []string{"default", "kube-system"} {
		eventually(t, func() error {
			m, err := clientset(t, p.Loopback()).CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && m.Data["ca.crt"] != string(c.ServingCA) {
				t.Fatalf("%s has %q", namespace, m.Data["ca.crt"])
			}
			return err
		})
	}
}

// everything returns every object of every kind, as JSON.
func everything(t *testing.T, p *vcluster.ControlPlane) [][]byte {
	t.Helper()
	lists, err := clientset(t, p.Loopback()).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			objects, err := client.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for _, o := range objects.Items {
				doc, err := json.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				docs = append(docs, doc)
			}
		}
	}
	if len(docs) < 100 {
		t.Fatalf("a space holds %d objects: not all were listed", len(docs))
	}
	return docs
}

// machineNames matches this machine's name and addresses, but for loopback, as
// words. A short name may well be in a key or certificate.
func machineNames(t *testing.T) *regexp.Regexp {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{regexp.QuoteMeta(host)}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			names = append(names, regexp.QuoteMeta(n.IP.String()))
		}
	}
	return regexp.MustCompile(`(?i)(^|[^a-z0-9+/=])(` + strings.Join(names, "|") + `)([^a-z0-9+/=]|$)`)
}

// get reads a path of the API as it is.
func get(t *testing.T, p *vcluster.ControlPlane, path string) []byte {
	t.Helper()
	c := p.Loopback()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := io.ReadAll(resp.Body)
	if err == nil {
		err = resp.Body.Close()
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v: %s", path, resp.Status, err, doc)
	}
	return doc
}
