// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// papers are certificates, and authorities are their issuers, as far as it matters here. A controller of the host would issue papers.
const papers = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: papers.%[1]s.example.com}
spec:
  group: %[1]s.example.com
  scope: Namespaced
  names: {plural: papers, singular: paper, kind: Paper}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              secretName: {type: string}
              names: {type: array, items: {type: string}}
              authority: {type: string}
              days: {type: integer, default: 90}
              hook: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: authorities.%[1]s.example.com}
spec:
  group: %[1]s.example.com
  scope: Cluster
  names: {plural: authorities, singular: authority, kind: Authority}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec: {type: object, properties: {url: {type: string}, password: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: berth.dev/v1alpha1
kind: CRDShare
metadata: {name: papers.%[1]s.example.com}
spec: {mode: Forced, tenants: [{selector: {}}]}
---
apiVersion: berth.dev/v1alpha1
kind: CRDShare
metadata: {name: authorities.%[1]s.example.com}
spec: {mode: Forced, tenants: [{selector: {}}]}
---
apiVersion: berth.dev/v1alpha1
kind: ResourceSync
metadata: {name: authorities.%[1]s.example.com}
spec:
  direction: FromHost
  version: v1
  tenants: [{names: [%[2]s]}]
  fields: [{path: spec.url}]
  status: [status.ready]
---
apiVersion: berth.dev/v1alpha1
kind: ResourceSync
metadata: {name: papers.%[1]s.example.com}
spec:
  direction: ToHost
  version: v1
  tenants: [{names: [%[2]s]}]
  maxObjects: 3
  fields:
  - {path: spec.secretName, type: ReturnedSecret}
  - {path: spec.names, rule: "self.all(n, n.endsWith('.example.org'))"}
  - {path: spec.authority, type: Imported, resource: authorities.%[1]s.example.com}
  - {path: spec.days, rule: self <= 365}
  status: [status.conditions, status.serial]
`

func paper(group, name, spec string) string {
	return fmt.Sprintf("{apiVersion: %s.example.com/v1, kind: Paper, metadata: {name: %s, namespace: default}, spec: %s}", group, name, spec)
}

func authority(group, name, labels string) string {
	return fmt.Sprintf("{apiVersion: %s.example.com/v1, kind: Authority, metadata: {name: %s, labels: %s}, spec: {url: https://ca.example.org, password: secret}}", group, name, labels)
}

// field waits until an object has a value at a JSONPath.
func (c *cluster) field(t *testing.T, want, path string, object ...string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", append([]string{"get", "-o", "jsonpath=" + path}, object...)...)
		if err != nil {
			return withOutput(err, out)
		}
		return expect(strings.Join(object, " ")+" "+path, out, want)
	})
}

// lacks waits until a cluster has no such object.
func (c *cluster) lacks(t *testing.T, object ...string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", append([]string{"get", "-o", "name"}, object...)...)
		if err == nil || !strings.Contains(out, "NotFound") && !strings.Contains(out, "not found") {
			return fmt.Errorf("get %v: %w: %s", object, orErr(err), out)
		}
		return nil
	})
}

// syncing waits until ResourceSyncs are ready.
func (c *cluster) syncing(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		out, err := c.tryKubectl(t, "", "wait", "--for=condition=Ready", "resourcesync/"+name, "--timeout=180s")
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, out, c.kubectl(t, "get", "resourcesyncs", "-o", "wide"))
		}
	}
}

// tenants creates tenants, and waits for their spaces, which have this isolation.
func (b *berth) tenants(t *testing.T, host *cluster, isolation string, names ...string) (spaces []*cluster) {
	t.Helper()
	for _, name := range names {
		host.apply(t, fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {space: {isolation: %s}}}", name, isolation))
	}
	for _, name := range names {
		eventually(t, func() error { _, err := host.tryKubectl(t, "", "get", "space", name); return err })
		awaitReady(t, host, name, "True")
		spaces = append(spaces, b.space(t, name))
	}
	return spaces
}

// C6: a custom resource is synced to the host by a declaration alone, its status and Secret return, and objects of the host are shown.
func TestCustomResourcesAreSynced(t *testing.T) {
	t.Parallel()
	whereverSpacesRun(t, customResourcesAreSynced)
}

// whereverSpacesRun runs a test with spaces in the shared process, and with each in a process of its own.
func whereverSpacesRun(t *testing.T, test func(t *testing.T, isolation string)) {
	t.Helper()
	for _, isolation := range []string{"Shared", "Dedicated"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			test(t, isolation)
		})
	}
}

func customResourcesAreSynced(t *testing.T, isolation string) {
	b := start(t, "--operator")
	host := b.host(t)
	spaces := b.tenants(t, host, isolation, "news", "other")
	news, other := spaces[0], spaces[1]
	host.apply(t, fmt.Sprintf(papers, "press", "news"))
	host.syncing(t, "authorities.press.example.com", "papers.press.example.com")
	host.apply(t, authority("press", "public", "{berth.dev/show: 'true', internal: x}"))
	host.apply(t, authority("press", "hidden", "{}"))

	t.Run("objects of the host are shown", func(t *testing.T) {
		news.field(t, `{"url":"https://ca.example.org"}`, "{.spec}", "authority", "public")
		news.field(t, "", "{.metadata.labels.internal}", "authority", "public")
		news.lacks(t, "authority", "hidden")
		host.kubectl(t, "patch", "authority", "public", "--subresource=status", "--type=merge", "-p", `{"status":{"ready":true,"key":"x"}}`)
		news.field(t, `{"ready":true}`, "{.status}", "authority", "public")
	})
	t.Run("what a tenant changes of them is undone", func(t *testing.T) {
		news.kubectl(t, "patch", "authority", "public", "--type=merge", "-p", `{"spec":{"url":"https://evil.example.net","password":"mine"}}`)
		news.field(t, `{"url":"https://ca.example.org"}`, "{.spec}", "authority", "public")
		news.kubectl(t, "annotate", "authority", "public", "note=mine")
		news.field(t, "", "{.metadata.annotations}", "authority", "public")
		news.kubectl(t, "label", "authority", "public", "app.kubernetes.io/managed-by-")
		news.field(t, "berth", `{.metadata.labels.app\.kubernetes\.io/managed-by}`, "authority", "public")
		news.kubectl(t, "delete", "authority", "public")
		news.field(t, `{"url":"https://ca.example.org"}`, "{.spec}", "authority", "public")
	})

	const onHost = "news--default--front"
	returned := declaration.ReturnedName("papers.press.example.com", translate.Space{Name: "news"}, "default", "front-tls")
	news.apply(t, paper("press", "front", "{secretName: front-tls, names: [a.example.org], authority: public}"))
	t.Run("objects of the tenant are on the host", func(t *testing.T) {
		host.field(t, `{"authority":"public","days":90,"names":["a.example.org"],"secretName":"`+returned+`"}`, "{.spec}", "paper", onHost, "-n", "berth-news")
	})
	t.Run("the status and the Secret return", func(t *testing.T) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: returned}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": []byte("one"), "tls.key": []byte("two")},
		}
		must(host.CoreV1().Secrets("berth-news").Create(t.Context(), secret, metav1.CreateOptions{}))(t)
		host.kubectl(t, "patch", "paper", onHost, "-n", "berth-news", "--subresource=status", "--type=merge", "-p",
			`{"status":{"serial":"7","internal":"x","conditions":[{"type":"Ready","message":"issued `+onHost+`"}]}}`)
		news.field(t, `{"conditions":[{"message":"issued front","type":"Ready"}],"serial":"7"}`, "{.status}", "paper", "front")
		await(t, news.CoreV1().Secrets("default").Get, "front-tls", func(s *corev1.Secret) error {
			return expect("the Secret", string(s.Type)+" "+string(s.Data["tls.crt"])+" "+string(s.Data["tls.key"]), "kubernetes.io/tls one two")
		})
	})
	t.Run("a pod of the tenant gets the Secret", func(t *testing.T) {
		news.apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: reader, namespace: default}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: tls, mountPath: /tls}]}], volumes: [{name: tls, secret: {secretName: front-tls}}]}}`)
		await(t, host.CoreV1().Secrets("berth-news").Get, "news--default--front-tls", func(s *corev1.Secret) error {
			return expect("the copy for pods", string(s.Data["tls.crt"]), "one")
		})
	})
	t.Run("changes follow", func(t *testing.T) {
		news.kubectl(t, "patch", "paper", "front", "--type=merge", "-p", `{"spec":{"names":["a.example.org","b.example.org"],"days":30}}`)
		host.field(t, `["a.example.org","b.example.org"] 30`, "{.spec.names} {.spec.days}", "paper", onHost, "-n", "berth-news")
		host.kubectl(t, "patch", "paper", onHost, "-n", "berth-news", "--type=merge", "-p", `{"spec":{"names":["evil.example.net"]}}`)
		host.field(t, `["a.example.org","b.example.org"]`, "{.spec.names}", "paper", onHost, "-n", "berth-news")
	})
	t.Run("what a controller of the host writes beside the declared fields stays", func(t *testing.T) {
		host.kubectl(t, "patch", "paper", onHost, "-n", "berth-news", "--type=merge", "-p", `{"spec":{"hook":"of the host"}}`)
		news.kubectl(t, "patch", "paper", "front", "--type=merge", "-p", `{"spec":{"days":40}}`)
		host.field(t, "40 of the host", "{.spec.days} {.spec.hook}", "paper", onHost, "-n", "berth-news")
	})
	t.Run("a sleeping space wakes for its objects", func(t *testing.T) {
		b.command(t, "sleep", "news")
		host.kubectl(t, "patch", "paper", onHost, "-n", "berth-news", "--subresource=status", "--type=merge", "-p", `{"status":{"serial":"8"}}`)
		news.field(t, "8", "{.status.serial}", "paper", "front")
	})
	t.Run("other tenants have none of it", func(t *testing.T) {
		other.apply(t, paper("press", "back", "{names: [a.example.org]}"))
		if out := other.kubectl(t, "get", "authorities", "-o", "name"); out != "" {
			t.Errorf("the space shows %s", out)
		}
		if out := host.kubectl(t, "get", "papers", "-A", "-o", "jsonpath={.items[*].metadata.name}"); out != onHost {
			t.Errorf("the host has %s", out)
		}
	})
	t.Run("what is deleted is gone on the host", func(t *testing.T) {
		news.kubectl(t, "delete", "paper", "front")
		host.lacks(t, "paper", onHost, "-n", "berth-news")
		eventually(t, func() error {
			if _, err := host.CoreV1().Secrets("berth-news").Get(t.Context(), returned, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the Secret that returned: %w", orErr(err))
			}
			return nil
		})
		if _, err := news.CoreV1().Secrets("default").Get(t.Context(), "front-tls", metav1.GetOptions{}); err != nil {
			t.Errorf("the tenant's copy: %v", err)
		}
	})
	t.Run("a sync that ends leaves the host's objects", func(t *testing.T) {
		news.apply(t, paper("press", "late", "{names: [a.example.org]}"))
		host.field(t, "90", "{.spec.days}", "paper", "news--default--late", "-n", "berth-news")
		uid := host.kubectl(t, "get", "paper", "news--default--late", "-n", "berth-news", "-o", "jsonpath={.metadata.uid}")
		host.kubectl(t, "delete", "resourcesync", "papers.press.example.com")
		eventually(t, func() error { // the account has no right any more, so nothing is synced
			out, err := host.tryKubectl(t, "", "auth", "can-i", "update", "papers.press.example.com", "-n", "berth-news", "--as", "system:serviceaccount:berth-news:berth-syncer")
			if err == nil {
				return errors.New("the space's account still may: " + out)
			}
			return nil
		})
		news.kubectl(t, "patch", "paper", "late", "--type=merge", "-p", `{"spec":{"days":1}}`)
		host.field(t, "90", "{.spec.days}", "paper", "news--default--late", "-n", "berth-news")
		host.apply(t, fmt.Sprintf(papers, "press", "news"))
		host.syncing(t, "papers.press.example.com")
		host.field(t, uid+" 1", "{.metadata.uid} {.spec.days}", "paper", "news--default--late", "-n", "berth-news")
	})
}

// hasEvent waits until events about an object say something.
func (c *cluster) hasEvent(t *testing.T, kind, name, what string) {
	t.Helper()
	eventually(t, func() error {
		events, err := c.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range events.Items {
			if strings.Contains(e.Message, what) {
				return nil
			}
			all = append(all, e.Message)
		}
		return fmt.Errorf("events of %s: %q, want one with %q", name, all, what)
	})
}

// C6, S1: tenants can't get past a declaration, nor keep anything of others.
func TestHostileCustomResourcesStayInTheirSpace(t *testing.T) {
	t.Parallel()
	whereverSpacesRun(t, customResourcesStayInTheirSpace)
}

func customResourcesStayInTheirSpace(t *testing.T, isolation string) {
	b := start(t, "--operator")
	host := b.host(t)
	evil := b.tenants(t, host, isolation, "evil")[0]
	host.apply(t, fmt.Sprintf(papers, "forge", "evil"))
	host.syncing(t, "authorities.forge.example.com", "papers.forge.example.com")
	host.apply(t, authority("forge", "public", "{berth.dev/show: 'true'}"))
	host.apply(t, authority("forge", "hidden", "{}"))
	evil.field(t, "public", "{.metadata.name}", "authority", "public")

	for name, c := range map[string]struct{ spec, event string }{
		"field":     {"{names: [a.example.org], hook: https://10.0.0.1}", "spec.hook: Forbidden: the platform does not sync this field"},
		"rule":      {"{names: [a.example.net]}", "spec.names: Forbidden: the platform allows only values for which this is true"},
		"authority": {"{names: [a.example.org], authority: hidden}", `spec.authority: Forbidden: "hidden" does not exist`},
		"secret":    {"{names: [a.example.org], secretName: ../other}", "spec.secretName: Invalid value"},
	} {
		evil.apply(t, paper("forge", name, c.spec))
		evil.hasEvent(t, "Paper", name, c.event)
	}
	if out := host.kubectl(t, "get", "papers", "-A", "-o", "name"); out != "" {
		t.Errorf("the host has %s", out)
	}
	t.Run("as many objects as are allowed", func(t *testing.T) {
		for i := range 5 {
			evil.apply(t, paper("forge", fmt.Sprintf("many-%d", i), "{names: [a.example.org]}"))
		}
		eventually(t, func() error {
			out, err := host.tryKubectl(t, "", "get", "papers", "-n", "berth-evil", "-o", "name")
			return errors.Join(err, expect("papers on the host", len(strings.Fields(out)), 3))
		})
		eventually(t, func() error {
			out := evil.kubectl(t, "get", "events", "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(out, "at most 3 papers on the host are possible; delete some") {
				return fmt.Errorf("events: %s", out)
			}
			return nil
		})
	})
	t.Run("a Secret of the tenant stays", func(t *testing.T) {
		evil.kubectl(t, "delete", "papers", "--all")
		must(evil.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{}))(t)
		evil.apply(t, paper("forge", "taker", "{names: [a.example.org], secretName: mine}"))
		returned := declaration.ReturnedName("papers.forge.example.com", translate.Space{Name: "evil"}, "default", "mine")
		host.field(t, returned, "{.spec.secretName}", "paper", "evil--default--taker", "-n", "berth-evil")
		must(host.CoreV1().Secrets("berth-evil").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: returned}, StringData: map[string]string{"a": "host"}}, metav1.CreateOptions{}))(t)
		host.kubectl(t, "patch", "paper", "evil--default--taker", "-n", "berth-evil", "--subresource=status", "--type=merge", "-p", `{"status":{"serial":"7"}}`)
		evil.hasEvent(t, "Paper", "taker", "a Secret mine exists that did not return for this object")
		if s := must(evil.CoreV1().Secrets("default").Get(t.Context(), "mine", metav1.GetOptions{}))(t); string(s.Data["a"]) != "b" {
			t.Errorf("the tenant's Secret has %q", s.Data["a"])
		}
	})
	t.Run("an account of a space is held by the host", func(t *testing.T) {
		create := func(manifest string, args ...string) (string, error) {
			return host.tryKubectl(t, manifest, append([]string{"create", "--as", "system:serviceaccount:berth-evil:berth-syncer", "-f", "-"}, args...)...)
		}
		manifest := func(name, extra, spec string) string {
			return fmt.Sprintf(`{apiVersion: forge.example.com/v1, kind: Paper, metadata: {name: %s, namespace: berth-evil, labels: {berth.dev/space: evil, app.kubernetes.io/managed-by: berth}%s}, spec: %s}`, name, extra, spec)
		}
		for name, m := range map[string]string{
			"another name":     manifest("plain", "", "{names: [a.example.org]}"),
			"another field":    manifest("evil--default--x", "", "{hook: x}"),
			"a rule":           manifest("evil--default--x", "", "{names: [a.example.net]}"),
			"a host's Secret":  manifest("evil--default--x", "", "{secretName: token-of-the-host}"),
			"an owner":         manifest("evil--default--x", ", ownerReferences: [{apiVersion: v1, kind: Namespace, name: default, uid: x}]", "{}"),
			"a finalizer":      manifest("evil--default--x", ", finalizers: [example.com/x]", "{}"),
			"an annotation":    manifest("evil--default--x", ", annotations: {example.com/hook: x}", "{}"),
			"another's space":  strings.Replace(manifest("evil--default--x", "", "{}"), "berth.dev/space: evil", "berth.dev/space: news", 1),
			"another's in all": strings.ReplaceAll(manifest("evil--default--x", "", "{}"), "berth-evil", "default"),
		} {
			if out, err := create(m); err == nil || !strings.Contains(out, "orbidden") {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
		if out, err := create(manifest("evil--default--x", "", "{names: [a.example.org], days: 30}"), "--dry-run=server"); err != nil {
			t.Errorf("what translation makes: %v: %s", err, out)
		}
	})
}
