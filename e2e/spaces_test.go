// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// T2, T5, N1, N2, X3: one test, as its parts look at the same two spaces.
func TestTwoSpacesOfOneHost(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "a")
	makeBusy(t, b.space(t, "a"))
	before := nodesOfPods(t, b.space(t, "a"), b.host(t), "a")

	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "b") // a, of the earlier run, runs too
	a, other, host := b.space(t, "a"), b.space(t, "b"), b.host(t)
	makeBusy(t, other)

	t.Run("keep a node's alias over a restart", func(t *testing.T) {
		after := nodesOfPods(t, a, host, "a")
		for node, alias := range before {
			if after[node] != alias {
				t.Errorf("alias of %s was %s and is %s", node, alias, after[node])
			}
		}
	})
	t.Run("know a node by different aliases", func(t *testing.T) {
		inB := nodesOfPods(t, other, host, "b")
		for node, alias := range nodesOfPods(t, a, host, "a") {
			if inB[node] == alias {
				t.Errorf("both know %s as %s", node, alias)
			}
		}
	})
	t.Run("hide the host", func(t *testing.T) {
		checkHidden(t, b, "a")
		checkHidden(t, b, "b")
	})
	t.Run("have the namespaces default and kube-system", func(t *testing.T) {
		for _, space := range []*cluster{a, other} {
			for _, name := range []string{"default", "kube-system"} {
				if _, err := space.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	t.Run("do not see each other", func(t *testing.T) { checkApart(t, a, other, host) })
	t.Run("refuse each other's credentials", func(t *testing.T) { checkCredentials(t, b, a, other) })
	t.Run("hold different CRDs of one name", func(t *testing.T) { checkCRDs(t, a, other) })
}

// nodesOfPods maps host nodes to the aliases that a space's pods show, and
// checks that each node has one, and no two the same.
func nodesOfPods(t *testing.T, space, host *cluster, name string) map[string]string {
	t.Helper()
	aliases, nodes := map[string]string{}, map[string]string{}
	for _, v := range must(space.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}))(t).Items {
		if v.Spec.NodeName == "" {
			continue
		}
		h := must(host.CoreV1().Pods("berth-"+name).Get(t.Context(), name+"--"+v.Namespace+"--"+v.Name, metav1.GetOptions{}))(t)
		node, alias := h.Spec.NodeName, v.Spec.NodeName
		if known := aliases[node]; known != "" && known != alias {
			t.Errorf("pods on %s show %s and %s", node, known, alias)
		}
		if known := nodes[alias]; known != "" && known != node {
			t.Errorf("%s stands for %s and %s", alias, known, node)
		}
		aliases[node], nodes[alias] = alias, node
	}
	if len(aliases) < 2 {
		t.Fatalf("pods of space %s are on nodes %v, want them on several", name, aliases)
	}
	return aliases
}

// checkApart makes the same name in both spaces, and another in one (T2).
func checkApart(t *testing.T, a, b, host *cluster) {
	for _, space := range []*cluster{a, b} {
		space.run(t, "default", newPod("twin", func(p *corev1.Pod) { p.Labels = map[string]string{"twin": "yes"} }))
		space.serve(t, "default", newService("twin", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"twin": "yes"} }))
	}
	for space, name := range map[*cluster]string{a: "a", b: "b"} {
		pod := must(space.CoreV1().Pods("default").Get(t.Context(), "twin", metav1.GetOptions{}))(t)
		host.awaitEndpoints(t, "berth-"+name, name+"--default--twin", []string{pod.Status.PodIP})
	}
	a.namespace(t, "only-in-a")
	a.run(t, "only-in-a", newPod("only-in-a"))

	hosted := must(host.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "twin=yes"}))(t).Items
	var names []string
	for _, h := range hosted {
		names = append(names, h.Namespace+"/"+h.Name)
	}
	slices.Sort(names)
	if want := []string{"berth-a/a--default--twin", "berth-b/b--default--twin"}; !slices.Equal(names, want) {
		t.Errorf("the twins are %v on the host, want %v", names, want)
	}
	for kind, list := range everyList(t, b) {
		for _, uid := range []string{string(hosted[0].UID), string(hosted[1].UID)} {
			if strings.Contains(list, uid) {
				t.Errorf("%s of space b hold the UID of a host pod", kind)
			}
		}
		if strings.Contains(list, "only-in-a") {
			t.Errorf("%s of space b tell of an object of space a", kind)
		}
	}
	// Nor do they share what each of them takes down.
	if err := b.CoreV1().Pods("default").Delete(t.Context(), "twin", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, "host pod", host.CoreV1().Pods("berth-b").Get, "b--default--twin")
	if _, err := host.CoreV1().Pods("berth-a").Get(t.Context(), "a--default--twin", metav1.GetOptions{}); err != nil {
		t.Errorf("space a's pod went with that of b: %v", err)
	}
}

// checkCredentials takes a's certificate and the token of a pod of a's to b and to the host (T2).
func checkCredentials(t *testing.T, berth *berth, a, b *cluster) {
	host := berth.host(t)
	token := podToken(t, host, "berth-a", "a--default--twin")
	for name, other := range map[string]*cluster{"b": b, "the host": host} {
		for credential, config := range map[string]*rest.Config{
			"certificate": withServer(a.config, other.config.Host),
			"token":       withToken(withServer(a.config, other.config.Host), token),
		} {
			client := must(kubernetes.NewForConfig(config))(t)
			_, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("%s answers a's %s with %v, want Unauthorized", name, credential, err)
			}
		}
	}
	// The token is good where it is from, so that what was tested is the other.
	own := must(kubernetes.NewForConfig(withToken(a.config, token)))(t)
	if _, err := own.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a answers its own token with %v, want Forbidden: known, and without rights", err)
	}
	if err := a.CoreV1().RESTClient().Get().AbsPath("/spaces/b/version").Do(t.Context()).Error(); err == nil {
		t.Error("space b is reached by a path inside of a")
	}
}

// withServer is config for the API at another URL.
func withServer(config *rest.Config, server string) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = server
	return c
}

// withToken is config with no other credential than token.
func withToken(config *rest.Config, token string) *rest.Config {
	c := rest.AnonymousClientConfig(config)
	c.BearerToken = token
	return c
}

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, required: [FIELD], properties: {FIELD: {type: string}}}
`

// awaitCRD is `kubectl wait`, which fails on a CRD that has no conditions yet.
func (c *cluster) awaitCRD(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "wait", "--for=condition=Established", "crd/"+name, "--timeout=180s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// checkCRDs holds that a CRD is a tenant's own (T2, C1).
func checkCRDs(t *testing.T, a, b *cluster) {
	ship := func(field string) string {
		return "{apiVersion: example.com/v1, kind: Ship, metadata: {name: argo}, spec: {" + field + ": x}}"
	}
	for space, field := range map[*cluster]string{a: "sails", b: "oars"} {
		space.apply(t, strings.ReplaceAll(crd, "FIELD", field))
		space.awaitCRD(t, "ships.example.com")
	}
	for space, field := range map[*cluster]string{a: "sails", b: "oars"} {
		eventually(t, func() error {
			_, err := space.tryKubectl(t, ship(field), "apply", "-f", "-")
			return err
		})
		if out := space.kubectl(t, "get", "ship", "argo", "-o", "jsonpath={.spec."+field+"}"); out != "x" {
			t.Errorf("field %s of the ship is %q", field, out)
		}
	}
	if out, err := b.tryKubectl(t, ship("sails"), "create", "-f", "-"); err == nil {
		t.Errorf("b takes a ship of a's kind:\n%s", out)
	}
	a.kubectl(t, "delete", "crd", "ships.example.com")
	if out := b.kubectl(t, "get", "ship", "argo", "-o", "name"); strings.TrimSpace(out) != "ship.example.com/argo" {
		t.Errorf("b's ship went with a's CRD: %q", out)
	}
}
