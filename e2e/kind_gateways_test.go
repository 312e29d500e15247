// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// entrance is a gateway for a host, with and without TLS, and a route to a service.
const entrance = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s}
spec:
  gatewayClassName: shared
  listeners:
  - {name: web, protocol: HTTP, port: 80, hostname: %[2]s}
  - {name: secure, protocol: HTTPS, port: 443, hostname: %[2]s, tls: {certificateRefs: [{name: %[3]s}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: %[1]s}]
  hostnames: [%[2]s]
  rules:
  - matches: [{path: {type: PathPrefix, value: /shop}}]
    backendRefs: [{name: shop, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /blog}, headers: [{name: X-Reader, value: "yes"}]}]
    backendRefs: [{name: blog, port: 80}]
`

// defineGateways gives the host the Gateway API's definitions of a channel, of the release that
// the controller in hack/drivers is made for, until the test ends.
func defineGateways(t *testing.T, host *cluster, channel string) {
	t.Helper()
	files := definitionsOfGateways(t, channel)
	t.Cleanup(func() {
		host.kubectlAfter(t, "", append([]string{"delete", "--ignore-not-found"}, files...)...)
	})
	host.kubectl(t, append([]string{"apply", "--server-side"}, files...)...)
	host.awaitCRD(t, "gateways.gateway.networking.k8s.io")
	host.awaitCRD(t, "httproutes.gateway.networking.k8s.io")
}

// definitionsOfGateways returns arguments of kubectl for the files of a channel.
func definitionsOfGateways(t *testing.T, channel string) (args []string) {
	t.Helper()
	files := must(filepath.Glob(moduleOf(t, "drivers", "sigs.k8s.io/gateway-api") + "/config/crd/" + channel + "/gateway.networking.k8s.io_*.yaml"))(t)
	for _, file := range files {
		if !strings.Contains(file, "_vap_") { // a policy that keeps who has installed them from a change of the channel
			args = append(args, "-f", file)
		}
	}
	return args
}

// moduleOf is where the sources of a module are, of the version that a directory of hack uses.
func moduleOf(t *testing.T, directory, module string) string {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module) // it may have been needed by nothing else yet
	download.Dir = filepath.Join("..", "hack", directory)
	out, err := download.Output()
	if err != nil {
		t.Fatalf("download module %s: %v\n%s", module, err, out)
	}
	var has struct{ Dir string }
	if err := json.Unmarshal(out, &has); err != nil || has.Dir == "" {
		t.Fatalf("download module %s: %v\n%s", module, err, out)
	}
	return has.Dir
}

// says returns once a field of an object is as wanted, as kubectl shows it.
func (c *cluster) says(t *testing.T, object, field, want string) {
	t.Helper()
	eventually(t, func() error {
		out, err := c.tryKubectl(t, "", "get", object, "-o", "jsonpath="+field)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return expect(object+" "+field, out, want)
	})
}

func (d *controllersTest) gateway(t *testing.T) {
	d.a.says(t, "gatewayclass/shared", `{.status.conditions[?(@.type=="Accepted")].status}`, "True")
	roots := d.a.makeCertificate(t, "entrance", "g.example.com")
	d.a.apply(t, fmt.Sprintf(entrance, "entrance", "g.example.com", "entrance"))
	d.leads(t, "g.example.com/shop", nil, "shop")
	d.leads(t, "g.example.com/shop/window", roots, "shop")
	for _, at := range []string{"g.example.com/", "g.example.com/blog"} { // which wants a header
		if status, body, err := d.asks(t, at, nil); err != nil || status != http.StatusNotFound {
			t.Errorf("%s answers %d %q (%v), want 404", at, status, body, err)
		}
	}
	const conditions = `{range .status%s}{.type}={.status}:{.reason}:{.message} {end}`
	d.a.says(t, "gateway/entrance", "{.status.addresses[*].value}", exposedAddress)
	d.a.says(t, "gateway/entrance", fmt.Sprintf(conditions, ".conditions[*]"), "Accepted=True:Accepted: Programmed=True:Programmed: ")
	d.a.says(t, "gateway/entrance", "{.status.listeners[*].name} {.status.listeners[*].attachedRoutes}", "web secure 1 1")
	d.a.says(t, "httproute/entrance", "{.status.parents[*].parentRef.name} {.status.parents[*].controllerName}", "entrance berth.dev/gateway")
	d.a.says(t, "httproute/entrance", fmt.Sprintf(conditions, ".parents[0].conditions[*]"), "Accepted=True:Accepted: ResolvedRefs=True:ResolvedRefs: ")
}

// gatewayClaims: what is an ingress's is no gateway's, nor another space's.
func (d *controllersTest) gatewayClaims(t *testing.T) {
	d.b.makeCertificate(t, "entrance", "g.example.com")
	d.b.apply(t, fmt.Sprintf(entrance, "entrance", "g.example.com", "entrance"))
	event := d.b.awaitEvent(t, "default", "Gateway", "entrance", "SpaceForbids")
	if !strings.Contains(event.Message, "the host name g.example.com is in use outside of this space") {
		t.Errorf("the event says %q", event.Message)
	}
	d.b.makeIngress(t, ingressOf("entrance", "g.example.com", "", "shop"))
	d.b.awaitEvent(t, "default", "Ingress", "entrance", "SpaceForbids")
	for range 20 {
		if _, body, err := d.asks(t, "g.example.com/shop", nil); err != nil || !strings.HasPrefix(body, "shop serves ") {
			t.Fatalf("the host name's owner is not who answers: %q (%v)", body, err)
		}
	}
	d.a.kubectl(t, "delete", "gateway/entrance", "httproute/entrance")
	d.leads(t, "g.example.com/shop", nil, "thief")
}

// routeFollows: a route that leads nowhere says so, and leads on when it can.
func (d *controllersTest) routeFollows(t *testing.T) {
	d.a.apply(t, fmt.Sprintf(entrance, "late", "late.example.com", "none"))
	listener := `{.status.listeners[?(@.name=="%s")].conditions[?(@.type=="ResolvedRefs")].status}`
	d.a.says(t, "gateway/late", fmt.Sprintf(listener, "secure"), "False")
	d.a.says(t, "gateway/late", fmt.Sprintf(listener, "web"), "True")
	roots := d.a.makeCertificate(t, "none", "late.example.com")
	d.a.says(t, "gateway/late", fmt.Sprintf(listener, "secure"), "True")
	d.leads(t, "late.example.com/shop", roots, "shop")
	d.a.kubectl(t, "delete", "httproute/late")
	d.a.says(t, "gateway/late", "{.status.listeners[*].attachedRoutes}", "0 0")
}
