// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"strings"
	"testing"
)

// S6: where no service would lead to Berth's address, pods would be served
// nothing, and nobody told.
func TestThePodsAddressIsOfTheServicesFamily(t *testing.T) {
	for name, tc := range map[string]struct {
		address, services string
		refused           bool
	}{
		"IPv4":         {"192.0.2.10", "10.96.0.0/16", false},
		"IPv6":         {"2001:db8::10", "fd00:96::/112", false},
		"Mapped":       {"::ffff:192.0.2.10", "10.96.0.0/16", false},
		"IPv6 on IPv4": {"2001:db8::10", "10.96.0.0/16", true},
		"IPv4 on IPv6": {"192.0.2.10", "fd00:96::/112", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Pods{Address: tc.address}).Suits(netip.MustParsePrefix(tc.services))
			if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "pods-address="+tc.address) {
				t.Errorf("got %v, refused is %v", err, tc.refused)
			}
		})
	}
}

// B19: a selector without a namespace would select nothing, or pods of others.
func TestThePodsThatNetworkPoliciesOpenAreNamedInFull(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, selector, refused string
	}{
		"Neither":       {"", "", ""},
		"Both":          {"platform", "app=berth,tier=api", ""},
		"No namespace":  {"", "app=berth", "pods-selector=app=berth"},
		"No labels":     {"platform", "", "pods-namespace"},
		"An expression": {"platform", "app in (berth)", "KEY=VALUE"},
		"No name":       {"Platform!", "app=berth", "pods-namespace=Platform!"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := Pods{Address: "192.0.2.10", APIPort: 1, DNSPort: 2, HostDomain: "cluster.local", Namespace: tc.namespace, Selector: tc.selector}
			err := pods.check()
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Fatalf("got %v, want %q", err, tc.refused)
			}
			if at := pods.Endpoint(); err == nil && (at.Namespace != tc.namespace || tc.selector != "" && at.Labels["tier"] != "api") {
				t.Errorf("the policies open %v in %q", at.Labels, at.Namespace)
			}
		})
	}
}
