// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// routes are one of each kind, to a service.
const routes = `
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls, namespace: default}
spec:
  parentRefs: [{name: entrance, sectionName: secure}]
  hostnames: [calls.example.com]
  rules: [{matches: [{method: {service: shop.Cart, method: Add}}], backendRefs: [{name: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: opaque, namespace: default}
spec:
  parentRefs: [{name: entrance}]
  hostnames: [opaque.example.com]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: stream, namespace: default}
spec:
  parentRefs: [{name: tcp, namespace: gateways, sectionName: port-5432}]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
`

// syncRoutes has the routes of the Gateway API synced by the example. The host has their definitions. secure is called before they can be ready.
func syncRoutes(t *testing.T, host *cluster, secure func()) {
	t.Helper()
	host.kubectl(t, "apply", "-f", "../examples/gateway-routes")
	if secure != nil {
		secure()
	}
	host.syncing(t, "grpcroutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io", "tcproutes.gateway.networking.k8s.io")
}

// S1, C6: the Gateway API's other routes are synced by declaration alone, and lead only to Services that select pods of the space.
func TestRoutesAreSyncedByDeclaration(t *testing.T) {
	t.Parallel()
	whereverSpacesRun(t, routesAreSynced)
}

func routesAreSynced(t *testing.T, isolation string) {
	b := start(t, "--operator")
	host := b.host(t)
	spaces := b.tenants(t, host, isolation, "mall", "rival")
	mall, rival := spaces[0], spaces[1]
	host.kubectl(t, append([]string{"apply", "--server-side"}, definitionsOfGateways(t, "standard")...)...)
	syncRoutes(t, host, nil)
	const selecting = "{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: default}, spec: {selector: {app: shop}, ports: [{port: 80}]}}"
	mall.apply(t, selecting)
	mall.apply(t, routes)

	there := func(kind, name, want, path string) {
		t.Helper()
		host.field(t, want, path, kind, "mall--default--"+name, "-n", "berth-mall")
	}
	gone := func(kind, name string) {
		t.Helper()
		host.lacks(t, kind, "mall--default--"+name, "-n", "berth-mall")
	}
	t.Run("names are those of the host", func(*testing.T) {
		const backend = " {.spec.rules[0].backendRefs[0].name}"
		there("grpcroute", "calls", "mall--default--entrance secure shop.Cart mall--default--shop", "{.spec.parentRefs[0].name} {.spec.parentRefs[0].sectionName} {.spec.rules[0].matches[0].method.service}"+backend)
		there("tlsroute", "opaque", "mall--default--entrance opaque.example.com mall--default--shop", "{.spec.parentRefs[0].name} {.spec.hostnames[0]}"+backend)
		there("tcproute", "stream", "tcp gateways port-5432 mall--default--shop", "{.spec.parentRefs[0].name} {.spec.parentRefs[0].namespace} {.spec.parentRefs[0].sectionName}"+backend)
	})
	t.Run("the status returns with the tenant's names", func(t *testing.T) {
		host.kubectl(t, "patch", "grpcroute", "mall--default--calls", "-n", "berth-mall", "--subresource=status", "--type=merge", "-p",
			`{"status":{"parents":[{"controllerName":"example.com/gateway","parentRef":{"name":"mall--default--entrance"},"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","observedGeneration":1,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}]}}`)
		mall.field(t, "entrance True", "{.status.parents[0].parentRef.name} {.status.parents[0].conditions[0].status}", "grpcroute", "calls")
	})
	t.Run("what isn't listed is refused", func(t *testing.T) {
		for name, patch := range map[string]string{
			`spec.parentRefs[0].namespace: Forbidden`:                    `{"spec":{"parentRefs":[{"name":"entrance","namespace":"kube-system"}]}}`,
			`spec.rules[0].backendRefs[0].namespace: Forbidden`:          `{"spec":{"rules":[{"backendRefs":[{"name":"shop","port":80,"namespace":"kube-system"}]}]}}`,
			`spec.rules[0].backendRefs[0].kind: Forbidden`:               `{"spec":{"rules":[{"backendRefs":[{"name":"shop","port":80,"kind":"Bucket"}]}]}}`,
			`spec.rules[0].filters: Forbidden`:                           `{"spec":{"rules":[{"filters":[{"type":"ExtensionRef","extensionRef":{"group":"example.com","kind":"Plugin","name":"x"}}],"backendRefs":[{"name":"shop","port":80}]}]}}`,
			`spec.rules[0].matches[0].method.type: Forbidden`:            `{"spec":{"rules":[{"matches":[{"method":{"type":"RegularExpression","service":".*"}}],"backendRefs":[{"name":"shop","port":80}]}]}}`,
			`spec.hostnames: Forbidden: the platform allows only values`: `{"spec":{"hostnames":["*.example.com"]}}`,
		} {
			mall.kubectl(t, "patch", "grpcroute", "calls", "--type=merge", "-p", patch)
			mall.hasEvent(t, "GRPCRoute", "calls", name)
			gone("grpcroute", "calls")
		}
		mall.apply(t, routes)
		mall.kubectl(t, "patch", "grpcroute", "calls", "--type=json", "-p", `[{"op":"replace","path":"/spec/rules","value":[{"backendRefs":[{"name":"shop","port":80}]}]}]`)
		there("grpcroute", "calls", "mall--default--shop", "{.spec.rules[0].backendRefs[0].name}")
	})
	t.Run("a service that leads out of the space has no route", func(t *testing.T) {
		mall.kubectl(t, "delete", "service", "shop")
		mall.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: shop, namespace: default}, spec: {type: ExternalName, externalName: db.host.example}}")
		for kind, name := range map[string]string{"GRPCRoute": "calls", "TLSRoute": "opaque", "TCPRoute": "stream"} {
			gone(kind, name)
			mall.hasEvent(t, kind, name, `it names the Service "shop": the service has type ExternalName or no selector`)
		}
		mall.kubectl(t, "delete", "service", "shop")
		mall.apply(t, selecting)
		there("tlsroute", "opaque", "mall--default--shop", "{.spec.rules[0].backendRefs[0].name}")
	})
	t.Run("the host's objects go when the sync of a tenant ends", func(t *testing.T) {
		rival.apply(t, selecting)
		rival.apply(t, routes)
		host.field(t, "rival--default--shop", "{.spec.rules[0].backendRefs[0].name}", "tcproute", "rival--default--stream", "-n", "berth-rival")
		for _, kind := range []string{"tcproutes", "tlsroutes"} {
			host.kubectl(t, "patch", "resourcesync", kind+".gateway.networking.k8s.io", "--type=merge", "-p", `{"spec":{"tenants":[{"names":["rival"]}]}}`)
		}
		gone("tcproute", "stream")
		gone("tlsroute", "opaque")
		host.field(t, "rival--default--shop", "{.spec.rules[0].backendRefs[0].name}", "tcproute", "rival--default--stream", "-n", "berth-rival")
		host.kubectl(t, "patch", "resourcesync", "tcproutes.gateway.networking.k8s.io", "--type=merge", "-p", `{"spec":{"tenants":[{"selector":{}}]}}`)
		there("tcproute", "stream", "mall--default--shop", "{.spec.rules[0].backendRefs[0].name}")
	})
	t.Run("the declaration can't leave the services", func(t *testing.T) {
		out, err := host.tryKubectl(t, "", "patch", "resourcesync", "tcproutes.gateway.networking.k8s.io", "--type=merge", "-p", `{"spec":{"fields":[{"path":"spec.rules[*].name"}]}}`)
		if err == nil || !strings.Contains(out, "delete it, and create it without such fields") {
			t.Errorf("the API answers %v: %s", err, out)
		}
	})
}
