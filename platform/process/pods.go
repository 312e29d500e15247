// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/translate"
)

// Pods configures where the spaces' pods reach DNS and the API of their space.
type Pods struct {
	// Address is an IP of this machine or pod. Pods must reach it with their own source addresses, without
	// masquerading. If it is empty, pods use the host's DNS and don't reach the API.
	Address          string
	APIPort, DNSPort uint16
	// Namespace and Selector (KEY=VALUE,...) select the host's pods that this process is one of. They are empty if it
	// does not run in a pod. Network policies open the ports of these pods, or otherwise those of Address.
	Namespace, Selector string
	// Upstreams are the resolvers, as IP or IP:PORT, for names outside of spaces. By default, these are the machine's
	// resolvers. "none" means none.
	Upstreams []string
	// HostDomain is the cluster domain of the host. Pods can't resolve names in it.
	HostDomain string
}

// ResolvConf is the file with the machine's resolvers.
const ResolvConf = "/etc/resolv.conf"

func (p *Pods) check() error {
	if p.Address == "" {
		return nil
	}
	addr, err := netip.ParseAddr(p.Address)
	if err != nil || !addr.IsGlobalUnicast() {
		return fielderror.New("pods-address", p.Address, "must be one IP address of this machine or pod that other machines can reach")
	}
	if p.APIPort == 0 || p.DNSPort == 0 || p.APIPort == p.DNSPort {
		return fielderror.New("pods-port", p.APIPort, "pods-port and dns-port must be two different ports; dns-port is %d", p.DNSPort)
	}
	if err := p.checkSelector(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(p.HostDomain); len(problems) > 0 {
		return fielderror.New("host-domain", p.HostDomain, "%s", problems[0])
	}
	if len(p.Upstreams) == 1 && p.Upstreams[0] == "none" {
		return nil
	}
	for _, upstream := range p.Upstreams {
		if _, err := withPort(upstream); err != nil {
			return fielderror.New("dns-upstream", upstream, "must be IP or IP:PORT: %w", err)
		}
	}
	return nil
}

// Suits rejects an address of the wrong family: a Service of the host has only endpoints of the family of its cluster
// IP.
func (p *Pods) Suits(services netip.Prefix) error {
	if addr := p.Endpoint().Address; addr.Is4() != services.Addr().Is4() {
		return fielderror.New("pods-address", addr, "the host's services have addresses in %s, which can't lead to an address of the other IP family; use an address of the same family",
			services)
	}
	return nil
}

// Endpoint returns what the objects of the spaces' pods need to know.
func (p *Pods) Endpoint() translate.PodsEndpoint {
	addr, err := netip.ParseAddr(p.Address)
	if err != nil {
		return translate.PodsEndpoint{}
	}
	selected, err := labels.ConvertSelectorToLabelsMap(p.Selector)
	if err != nil { // checkSelector has rejected it
		return translate.PodsEndpoint{}
	}
	return translate.PodsEndpoint{Address: addr.Unmap(), APIPort: int32(p.APIPort), DNSPort: int32(p.DNSPort), Namespace: p.Namespace, Labels: selected}
}

func (p *Pods) checkSelector() error {
	if (p.Namespace == "") != (p.Selector == "") {
		return fielderror.New("pods-selector", p.Selector, "must be set together with --pods-namespace, which is %q: network policies select the pods by both", p.Namespace)
	}
	if _, err := labels.ConvertSelectorToLabelsMap(p.Selector); err != nil {
		return fielderror.New("pods-selector", p.Selector, "must be KEY=VALUE,..., the labels of Berth's own pods: %w", err)
	}
	if problems := validation.IsDNS1123Label(p.Namespace); p.Namespace != "" && len(problems) > 0 {
		return fielderror.New("pods-namespace", p.Namespace, "%s", problems[0])
	}
	return nil
}

// withPort adds the port of DNS to an address without a port.
func withPort(address string) (string, error) {
	if addr, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return netip.AddrPortFrom(addr, 53).String(), nil
	}
	addr, err := netip.ParseAddrPort(address)
	return addr.String(), err
}

// Resolvers returns the upstream resolvers, without this process itself.
func (p *Pods) Resolvers() (resolvers []string, err error) {
	all := p.Upstreams
	if len(all) == 1 && all[0] == "none" {
		return nil, nil
	}
	if len(all) == 0 {
		if all, err = dns.SystemUpstreams(ResolvConf); err != nil {
			return nil, fielderror.New("dns-upstream", "", "%w", err)
		}
	}
	for _, upstream := range all {
		if upstream, err = withPort(upstream); err != nil {
			return nil, fielderror.New("dns-upstream", "", "%w", err)
		}
		if upstream != net.JoinHostPort(p.Address, strconv.Itoa(int(p.DNSPort))) {
			resolvers = append(resolvers, upstream)
		}
	}
	return resolvers, nil
}
