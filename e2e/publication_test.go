// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// published waits until a jsonpath of an object, as kubectl gets it, is as wanted. Without a path, the object must exist; if want is
// "gone", it must not.
func (c *cluster) published(t *testing.T, want string, args ...string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", append([]string{"get"}, args...)...)
		switch {
		case want == "gone" && err != nil && strings.Contains(out, "not found"):
			return nil
		case want == "gone":
			return fmt.Errorf("kubectl get %s: %s, %w, want none", strings.Join(args, " "), out, orErr(err))
		case err != nil:
			return fmt.Errorf("kubectl get %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return expect("kubectl get "+strings.Join(args, " "), strings.TrimSpace(out), want)
	})
}

func orErr(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// refusedAsPublished fails the test unless kubectl is refused with the name of a publication.
func (c *cluster) refusedAsPublished(t *testing.T, publication string, args ...string) {
	t.Helper()
	out, err := c.tryKubectl(t, "", args...)
	if want := fmt.Sprintf("publishes this object with publication %q", publication); err == nil || !strings.Contains(out, want) {
		t.Errorf("kubectl %s: %v: %s, want a refusal that says %s", strings.Join(args, " "), err, out, want)
	}
}

func publication(name, spec string) string {
	return fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: Publication, metadata: {name: %s}, spec: %s}\n---\n", name, spec)
}

const sourcesOfAllKinds = `
{apiVersion: v1, kind: Namespace, metadata: {name: web}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: settings, labels: {berth.dev/publish: "true"}}, data: {color: blue}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: web, name: everywhere, labels: {in: every}}, data: {version: "1"}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: web, name: closed, labels: {in: every}}, spec: {podSelector: {}, policyTypes: [Ingress]}}
---
{apiVersion: v1, kind: LimitRange, metadata: {namespace: web, name: sizes, labels: {in: every}}, spec: {limits: [{type: Container, max: {cpu: "2"}}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: web, name: quota, labels: {in: every}}, spec: {hard: {count/secrets: "50"}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: widget-viewer, labels: {berth.dev/publish: "true",
  rbac.authorization.k8s.io/aggregate-to-view: "true"}}, rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: web, name: viewers, labels: {berth.dev/publish: "true"}},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widget-viewer}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: support}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: no-forbidden, labels: {berth.dev/publish: "true"}},
  spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
    validations: [{expression: "!object.metadata.name.startsWith('forbidden')", message: the admin forbids this name}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: no-forbidden, labels: {berth.dev/publish: "true"}},
  spec: {policyName: no-forbidden, validationActions: [Deny]}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com, labels: {berth.dev/publish: "true"}}, spec: {group: example.com,
  scope: Cluster, names: {plural: widgets, singular: widget, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
    properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}}
`

const publicationsOfAllKinds = `{sources: [
  {apiVersion: v1, kind: ConfigMap, namespace: web}, {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, namespace: web},
  {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy}, {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding},
  {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}, {apiVersion: example.com/v1, kind: Widget}]}`

// P1, M3, O9: objects of the host reach the spaces of all or some tenants, those that are created later too, and those that sleep without
// waking them. They follow their sources, and tenants can't change them.
func TestPublishedObjectsReachSpaces(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", "--space", "other")
	host := b.host(t)
	host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: solar, labels: {tier: gold}}}`)
	host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: wind, labels: {tier: tin}}}`)
	for _, name := range []string{"solar", "wind"} {
		eventually(t, func() error { _, err := host.tryKubectl(t, "", "get", "space", name); return err })
		awaitReady(t, host, name, "True")
	}
	solar, wind := b.space(t, "solar"), b.space(t, "wind")
	solar.namespace(t, "web")
	host.apply(t, sourcesOfAllKinds)
	host.awaitCRD(t, "widgets.example.com")
	host.apply(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: large, labels: {berth.dev/publish: "true"}}, spec: {size: 9}}`)
	every := `, namespace: web, selector: {matchLabels: {in: every}}}`
	host.apply(t, publication("all", publicationsOfAllKinds)+
		publication("every", `{namespaces: Every, sources: [{apiVersion: v1, kind: ConfigMap`+every+`, {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy`+every+
			`, {apiVersion: v1, kind: LimitRange`+every+`]}`)+
		publication("quotas", `{namespaces: Every, tenants: {matchLabels: {tier: gold}}, sources: [{apiVersion: v1, kind: ResourceQuota`+every+
			`], fields: [{path: 'spec.hard["count/configmaps"]', expression: 'tenant.labels.tier == "gold" ? "70" : "7"'},
			  {path: metadata.labels.tenant, expression: tenant.name}, {path: metadata.labels.space, expression: space.name}]}`))
	for _, name := range []string{"all", "every", "quotas", "cluster-roles"} {
		host.kubectl(t, "wait", "--for=condition=Ready", "publication/"+name, "--timeout=30s")
	}

	if t.Run("in all spaces", func(t *testing.T) {
		for _, c := range []*cluster{solar, wind} {
			c.published(t, "1", "configmap", "everywhere", "-n", "default", "-o", "jsonpath={.data.version}")
			c.published(t, "every", "networkpolicy", "closed", "-n", "default", "-o", `jsonpath={.metadata.labels.berth\.dev/publication}`)
			c.published(t, "2", "limitrange", "sizes", "-n", "default", "-o", "jsonpath={.spec.limits[0].max.cpu}")
			c.published(t, "9", "widget", "large", "-o", "jsonpath={.spec.size}")
			c.published(t, "gone", "limitrange", "sizes", "-n", "kube-system")
		}
		solar.published(t, "blue", "configmap", "settings", "-n", "web", "-o", "jsonpath={.data.color}")
		solar.published(t, "widget-viewer", "rolebinding", "viewers", "-n", "web", "-o", "jsonpath={.roleRef.name}")
		wind.published(t, "gone", "configmap", "settings", "-n", "web")
		later := wind.namespace(t, "web")
		wind.published(t, "blue", "configmap", "settings", "-n", later, "-o", "jsonpath={.data.color}")
		wind.published(t, "1", "configmap", "everywhere", "-n", later, "-o", "jsonpath={.data.version}")
	}); t.Failed() {
		return
	}

	t.Run("not in a space without a tenant", func(t *testing.T) {
		b.space(t, "other").published(t, "gone", "networkpolicy", "closed", "-n", "default")
	})

	t.Run("in the spaces of selected tenants, with their values", func(t *testing.T) {
		solar.published(t, "70 50 solar solar", "resourcequota", "quota", "-n", "web", "-o",
			`jsonpath={.spec.hard.count/configmaps} {.spec.hard.count/secrets} {.metadata.labels.tenant} {.metadata.labels.space}`)
		wind.published(t, "gone", "resourcequota", "quota", "-n", "default")
		host.kubectl(t, "label", "tenant", "wind", "tier=gold", "--overwrite")
		wind.published(t, "70 wind", "resourcequota", "quota", "-n", "default", "-o", `jsonpath={.spec.hard.count/configmaps} {.metadata.labels.tenant}`)
		host.kubectl(t, "label", "tenant", "wind", "tier=tin", "--overwrite")
		wind.published(t, "gone", "resourcequota", "quota", "-n", "default")
	})

	t.Run("in force", func(t *testing.T) {
		eventually(t, func() error {
			out, err := solar.tryKubectl(t, "", "create", "configmap", "forbidden", "--dry-run=server")
			if err == nil || !strings.Contains(out, "the admin forbids this name") {
				return fmt.Errorf("a forbidden ConfigMap: %w: %s", orErr(err), out)
			}
			return nil
		})
		eventually(t, func() error {
			out, err := solar.tryKubectl(t, "", "auth", "can-i", "get", "widgets.example.com", "-n", "web", "--as", "eve", "--as-group", "support")
			if !strings.HasSuffix(strings.TrimSpace(out), "yes") {
				return fmt.Errorf("support may not get widgets: %w: %s", orErr(err), out)
			}
			return nil
		})
		// The space's own controller aggregates it.
		eventually(t, func() error {
			if rules := solar.kubectl(t, "get", "clusterrole", "view", "-o", "jsonpath={.rules}"); !strings.Contains(rules, "widgets") {
				return fmt.Errorf("the role view has %s", rules)
			}
			return nil
		})
	})

	t.Run("and tenants can't change them", func(t *testing.T) {
		solar.refusedAsPublished(t, "every", "delete", "configmap", "everywhere", "-n", "web")
		solar.refusedAsPublished(t, "every", "delete", "limitrange", "--all", "-n", "web")
		solar.refusedAsPublished(t, "quotas", "patch", "resourcequota", "quota", "-n", "web", "--type=merge", "--patch", `{"spec": {"hard": {"count/configmaps": "99"}}}`)
		solar.refusedAsPublished(t, "all", "label", "configmap", "settings", "-n", "web", "berth.dev/publication-")
		solar.refusedAsPublished(t, "all", "delete", "validatingadmissionpolicybinding", "no-forbidden")
		solar.refusedAsPublished(t, "all", "delete", "crd", "widgets.example.com")
		solar.refusedAsPublished(t, "cluster-roles", "delete", "clusterrole", "widget-viewer")
	})

	t.Run("in a space that is created later", func(t *testing.T) {
		host.apply(t, spaceObject("solar-late", "{tenantName: solar}"))
		awaitReady(t, host, "solar-late", "True")
		late := b.space(t, "solar-late")
		late.published(t, "1", "configmap", "everywhere", "-n", "default", "-o", "jsonpath={.data.version}")
		late.published(t, "70 solar solar-late", "resourcequota", "quota", "-n", "default", "-o", `jsonpath={.spec.hard.count/configmaps} {.metadata.labels.tenant} {.metadata.labels.space}`)
		eventually(t, func() error {
			return expect("spaces of quotas", host.kubectl(t, "get", "publication", "quotas", "-o", "jsonpath={.status.spaces}"), "2")
		})
	})

	t.Run("in a space with a process of its own", func(t *testing.T) {
		host.apply(t, spaceObject("solar-alone", "{tenantName: solar, isolation: Dedicated}"))
		awaitReady(t, host, "solar-alone", "True")
		alone := b.space(t, "solar-alone")
		alone.published(t, "1", "configmap", "everywhere", "-n", "default", "-o", "jsonpath={.data.version}")
		alone.published(t, "70 solar solar-alone", "resourcequota", "quota", "-n", "default", "-o", `jsonpath={.spec.hard.count/configmaps} {.metadata.labels.tenant} {.metadata.labels.space}`)
		alone.refusedAsPublished(t, "every", "delete", "configmap", "everywhere")
		host.kubectl(t, "delete", "space", "solar-alone")
	})

	t.Run("in a space that sleeps", func(t *testing.T) {
		b.command(t, "sleep", "wind")
		b.awaitState(t, "wind", "Asleep")
		host.kubectl(t, "patch", "configmap", "everywhere", "-n", "web", "--type=merge", "--patch", `{"data": {"version": "2"}}`)
		solar.published(t, "2", "configmap", "everywhere", "-n", "default", "-o", "jsonpath={.data.version}")
		if state, _ := b.stateOf(t, "wind"); state != "Asleep" {
			t.Errorf("a change of a published object woke the space: it is %s", state)
		}
		first, err := wind.CoreV1().ConfigMaps("default").Get(t.Context(), "everywhere", metav1.GetOptions{})
		if err != nil || first.Data["version"] != "2" {
			t.Errorf("the first request finds %v, %v", first, err)
		}
	})

	t.Run("and follow their sources", func(t *testing.T) {
		host.kubectl(t, "label", "configmap", "settings", "-n", "web", "berth.dev/publish-")
		solar.published(t, "gone", "configmap", "settings", "-n", "web")
		host.kubectl(t, "label", "configmap", "settings", "-n", "web", "berth.dev/publish=true")
		solar.published(t, "blue", "configmap", "settings", "-n", "web", "-o", "jsonpath={.data.color}")
		host.kubectl(t, "delete", "limitrange", "sizes", "-n", "web")
		solar.published(t, "gone", "limitrange", "sizes", "-n", "web")
		host.kubectl(t, "delete", "publication", "all", "every")
		for _, object := range [][]string{{"configmap", "settings", "-n", "web"}, {"networkpolicy", "closed", "-n", "default"}, {"validatingadmissionpolicy", "no-forbidden"}, {"crd", "widgets.example.com"}} {
			solar.published(t, "gone", object...)
			wind.published(t, "gone", object...)
		}
		eventually(t, func() error { // the API server of the space takes a moment to know that the policy is gone
			if out, err := solar.tryKubectl(t, "", "create", "configmap", "forbidden", "-n", "web"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		solar.published(t, "70", "resourcequota", "quota", "-n", "web", "-o", `jsonpath={.spec.hard.count/configmaps}`)
	})

	t.Run("and what the admin deleted stays deleted", func(t *testing.T) {
		host.kubectl(t, "delete", "publication", "cluster-roles")
		solar.published(t, "gone", "clusterrole", "widget-viewer")
		b.stop(t, os.Interrupt)
		b.up(t, "--operator", "--space", "other")
		host, solar := b.host(t), b.space(t, "solar")
		awaitReady(t, host, "solar", "True")
		solar.published(t, "70", "resourcequota", "quota", "-n", "web", "-o", `jsonpath={.spec.hard.count/configmaps}`)
		host.apply(t, `{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: new}}`)
		eventually(t, func() error { _, err := host.tryKubectl(t, "", "get", "space", "new"); return err })
		host.published(t, "gone", "publication", "cluster-roles")
	})
}
