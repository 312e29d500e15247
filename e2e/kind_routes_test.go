// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// routesRelease is the namespace of the release that the test of examples/gateway-routes uses.
const routesRelease = "berth-routes-test"

// callsGateway is a tenant's Gateway for the routes of [routes] but the TCPRoute.
const callsGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: entrance, namespace: default}
spec:
  gatewayClassName: shared
  listeners:
  - {name: secure, protocol: HTTP, port: 80, hostname: calls.example.com}
  - {name: opaque, protocol: TLS, port: 443, hostname: opaque.example.com, tls: {mode: Passthrough}}
`

// tcpGateway is the platform's, whose port the space mall may use.
const tcpGateway = `
apiVersion: v1
kind: Namespace
metadata: {name: gateways}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: tcp, namespace: gateways}
spec:
  gatewayClassName: shared
  listeners:
  - {name: port-5432, protocol: TCP, port: 5432, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: berth-mall}}}}}
`

// S1, C6: examples/gateway-routes does what its README says: a real controller of the host serves routes of kinds that Berth doesn't know.
func TestRoutesOfARealClusterLeadToSpaces(t *testing.T) {
	host, images := realCluster(t, envImage, envTool, envDrivers)
	kinds := []string{"grpcroutes.gateway.networking.k8s.io", "tlsroutes.gateway.networking.k8s.io", "tcproutes.gateway.networking.k8s.io"}
	ownRelease(t, host, routesRelease, "mall", "default")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		removeSyncs(ctx, t, host, routesRelease, []string{"mall", "default"}, kinds...)
		host.kubectlAfter(t, "", "delete", "--ignore-not-found", "namespace", "gateways")
	})
	defineGateways(t, host, "experimental")
	install(t, host, "ingress-controller", "-tcp-routes")
	host.kubectl(t, "label", "namespace", "ingress-controller", "berth.dev/reaches-pods=true")
	helm(t, "install", "berth", "../charts/berth", "--namespace", routesRelease, "--create-namespace", "--take-ownership", "--wait", "--timeout", "6m",
		"--set", ofImage(images[0])+",storage.size=1Gi,service.type=NodePort,tenants.mall.quota.pods=5,sync.gateways=on,sync.httproutes=on,sync.gatewayclasses=berth.dev/show=true")
	awaitReady(t, host, "mall", "True")
	node := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items[0]
	space := reached(t, host, node, routesRelease, "mall")
	d := &controllersTest{host: host, a: space, tool: images[1], ports: map[string]string{}}
	for _, port := range must(host.CoreV1().Services("ingress-controller").Get(t.Context(), "ingress-controller", metav1.GetOptions{}))(t).Spec.Ports {
		d.ports[port.Name] = net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(int(port.NodePort)))
	}
	syncRoutes(t, host, func() { host.secureSyncs(t, routesRelease) })
	host.apply(t, tcpGateway)
	space.apply(t, fmt.Sprintf(shop, "shop", d.tool))
	space.says(t, "gatewayclass/shared", `{.status.conditions[?(@.type=="Accepted")].status}`, "True")
	space.apply(t, callsGateway)
	space.apply(t, routes)

	d.leads(t, "calls.example.com/shop.Cart/Add", nil, "shop")
	const accepted = `{.status.parents[0].parentRef.name} {.status.parents[0].conditions[?(@.type=="Accepted")].status} {.status.parents[0].conditions[?(@.type=="ResolvedRefs")].status}`
	space.says(t, "grpcroute/calls", accepted, "entrance True True")
	space.says(t, "tlsroute/opaque", accepted, "entrance True True")
	space.says(t, "tcproute/stream", accepted, "tcp True True")
	space.says(t, "gateway/entrance", "{.status.listeners[*].attachedRoutes}", "1 1")

	// A service that leads out of the space is not reached.
	space.kubectl(t, "patch", "service", "shop", "--type=json", "-p", `[{"op":"remove","path":"/spec/selector"}]`)
	host.lacks(t, "grpcroute", "mall--default--calls", "-n", "berth-mall")
	space.hasEvent(t, "GRPCRoute", "calls", `it names the Service "shop": the service has type ExternalName or no selector`)
	space.kubectl(t, "patch", "service", "shop", "--type=merge", "-p", `{"spec":{"selector":{"app":"shop"}}}`)
	d.leads(t, "calls.example.com/shop.Cart/Add", nil, "shop")

	// The host's objects go with the declaration, even while nobody watches.
	host.kubectl(t, "delete", "resourcesync", kinds[2])
	host.lacks(t, "tcproute", "mall--default--stream", "-n", "berth-mall")
	space.field(t, "stream", "{.metadata.name}", "tcproute", "stream")
}
