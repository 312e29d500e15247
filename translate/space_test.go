// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// N2: an alias answers "are these two together", within one space only, and
// tells nothing of the node.
func TestNodeAliasIsStableAndOfOneSpaceOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom([]string{"a", "kind-worker", "node-0123456789ab"}), rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,40}[a-z0-9])?`))
		node, other := name.Draw(t, "node"), name.Draw(t, "other node")
		space := translate.Space{Name: "demo", NodeKey: rapid.SliceOf(rapid.Byte()).Draw(t, "key")}
		alias := space.NodeAlias(node)
		if again := space.NodeAlias(node); again != alias {
			t.Fatalf("%q is %q, then %q", node, alias, again)
		}
		if errs := validation.IsDNS1123Subdomain(alias); len(errs) > 0 {
			t.Fatalf("alias %q could be no node's name: %v", alias, errs)
		}
		if alias == node {
			t.Fatalf("the alias of %q is its name", node)
		}
		if node != other && space.NodeAlias(other) == alias {
			t.Fatalf("%q and %q are both %q", node, other, alias)
		}
		sameKey := translate.Space{Name: "demo-2", NodeKey: space.NodeKey}
		if sameKey.NodeAlias(node) == alias {
			t.Fatalf("two spaces know %q by the same alias", node)
		}
		sameName := translate.Space{Name: "demo", NodeKey: append([]byte("other"), space.NodeKey...)}
		if sameName.NodeAlias(node) == alias {
			t.Fatalf("the alias of %q does not depend on the key: it could be guessed", node)
		}
	})
}

// A pod that is not scheduled yet is on no node, in the space as on the host.
func TestNodeAliasOfNoNodeIsEmpty(t *testing.T) {
	if got := sample.Demo().NodeAlias(""); got != "" {
		t.Errorf("NodeAlias(\"\") = %q", got)
	}
}

func TestHostNamespaceOfTheLongestSpaceIsALabel(t *testing.T) {
	name := make([]byte, translate.MaxSpaceName)
	for i := range name {
		name[i] = 's'
	}
	if errs := validation.IsDNS1123Label(translate.Space{Name: string(name)}.HostNamespace()); len(errs) > 0 {
		t.Errorf("host namespace: %v", errs)
	}
}

// S3: the original identity is on the host object, and nothing that a tenant
// wrote can pass for Berth's or steer the host's controllers.
func TestObjectMetaKeepsTheTenantOutOfBerthsKeys(t *testing.T) {
	controller := true
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "v-uid", ResourceVersion: "7", Generation: 3,
		Labels: map[string]string{
			"app":                          "web",
			"app.kubernetes.io/managed-by": "Helm",
			"berth.dev/space":              "other",
			"berth.dev/namespace":          "kube-system",
			"label.berth.dev/x":            "y",
			"notberth.dev/x":               "kept",
		},
		Annotations:     map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "berth.dev/uid": "forged"},
		Finalizers:      []string{"foregroundDeletion"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: &controller}},
	}}
	want := metav1.ObjectMeta{
		Namespace: "berth-demo", Name: "demo--default--web",
		Labels: map[string]string{
			"app":                          "web",
			"app.kubernetes.io/managed-by": "berth",
			"notberth.dev/x":               "kept",
			"berth.dev/space":              "demo",
			"berth.dev/namespace":          "default",
			// What the tenant's selectors find.
			"label.berth.dev/berth.dev.namespace---jpbbkjrmkj5moqwreasc67n7ym":          "kube-system",
			"label.berth.dev/berth.dev.space---ohwz7cbhe6at2xypk7hqohbsma":              "other",
			"label.berth.dev/label.berth.dev.x---rq4gczz7hy4obztncbwvomph74":            "y",
			"label.berth.dev/app.kubernetes.io.managed-by---42qcevtwbd3fyvo26qqxmf6r6q": "Helm",
		},
		Annotations: map[string]string{"berth.dev/namespace": "default", "berth.dev/name": "web", "berth.dev/uid": "v-uid"},
	}
	if diff := cmp.Diff(want, pod.ToHost(sample.Demo(), v, pod.Surroundings{}).ObjectMeta); diff != "" {
		t.Errorf("Pod: -want +got:\n%s", diff)
	}
	// Only pods are selected by label: no other host object bears the tenant's.
	want.Labels = map[string]string{
		"app.kubernetes.io/managed-by": "berth", "berth.dev/space": "demo", "berth.dev/namespace": "default",
	}
	if diff := cmp.Diff(want, sample.Demo().ObjectMeta(v, translate.LimitSubdomain)); diff != "" {
		t.Errorf("ObjectMeta: -want +got:\n%s", diff)
	}
}

// S3, S7: what was recorded is read back, and an object that Berth did not make
// is told from one that it did.
func TestIdentityIsReadBackFromTheHostObject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawName(t, "v")
		meta := translate.Space{Name: v.Space}.ObjectMeta(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Namespace, Name: v.Name, UID: "v-uid",
			Labels: map[string]string{"berth.dev/space": "other"}, Annotations: map[string]string{"berth.dev/name": "other"},
		}}, translate.LimitSubdomain)
		got, ok := translate.IdentityOf(&meta)
		want := translate.Identity{Space: v.Space, Namespace: v.Namespace, Name: v.Name, UID: "v-uid"}
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Fatalf("IdentityOf: ok %v, -want +got:\n%s", ok, diff)
		}
	})
	foreign := map[string]*metav1.ObjectMeta{
		"Bare":           {Name: "demo--default--web"},
		"OnlyLabel":      {Name: "demo--default--web", Labels: map[string]string{"berth.dev/space": "demo"}},
		"OnlyAnnotation": {Name: "demo--default--web", Annotations: map[string]string{"berth.dev/name": "web"}},
	}
	for name, meta := range foreign {
		if id, ok := translate.IdentityOf(meta); ok {
			t.Errorf("%s: a foreign object passes for %+v", name, id)
		}
	}
}

func TestOwnedIsBerthsDomainAndBelow(t *testing.T) {
	cases := map[string]struct {
		reason string
		want   bool
	}{
		"berth.dev/space":                   {"the domain itself", true},
		"label.berth.dev/x":                 {"below the domain", true},
		"berth.dev":                         {"a key without a domain is the tenant's", false},
		"notberth.dev/space":                {"ends like the domain but is another", false},
		"berth.dev.example.com/space":       {"begins like the domain but is another", false},
		"app.kubernetes.io/managed-by":      {"a well-known key that tenants set", false},
		"example.com/label.berth.dev":       {"the domain as a name", false},
		"volume.kubernetes.io/berth.dev":    {"the domain as a name", false},
		"a.b.berth.dev/any":                 {"any depth", true},
		"berth.dev/space/with/more/slashes": {"the first slash ends the domain", true},
	}
	for key, tc := range cases {
		if got := translate.Owned(key); got != tc.want {
			t.Errorf("Owned(%q) = %v: %s", key, got, tc.reason)
		}
	}
}
