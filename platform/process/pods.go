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

// Pods says where spaces' pods reach the DNS and the API of their space.
type Pods struct {
	// Address is an IP of this machine or pod, at which pods reach it without their own addresses being masked. If it is
	// empty, pods have the host's DNS, and no API.
	Address          string
	APIPort, DNSPort uint16
	// Namespace and Selector, which is of the form KEY=VALUE,..., are those of the pods on the host that this process is one of;
	// empty if it is none. Network policies then open its ports by them, and by Address otherwise.
	Namespace, Selector string
	// Upstreams are the IP or IP:PORT of resolvers for names outside of spaces; those of the machine if there are none,
	// and none if it is "none".
	Upstreams []string
	// HostDomain is the host's own cluster domain, which pods must not resolve names of.
	HostDomain string
}

// ResolvConf is where the machine says which resolvers it uses.
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

// Suits refuses an address that no service would lead to: the host gives services
// addresses of the family of its range, and takes endpoints of that family only.
func (p *Pods) Suits(services netip.Prefix) error {
	if addr := p.Endpoint().Address; addr.Is4() != services.Addr().Is4() {
		return fielderror.New("pods-address", addr, "the host's services have addresses in %s, which can't lead to an address of the other IP family; use an address of the same family",
			services)
	}
	return nil
}

// Endpoint is what the spaces' pods are told.
func (p *Pods) Endpoint() translate.PodsEndpoint {
	addr, err := netip.ParseAddr(p.Address)
	if err != nil {
		return translate.PodsEndpoint{}
	}
	selected, err := labels.ConvertSelectorToLabelsMap(p.Selector)
	if err != nil { // as checkSelector has said
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

// withPort makes an address that of DNS, unless it has a port.
func withPort(address string) (string, error) {
	if addr, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return netip.AddrPortFrom(addr, 53).String(), nil
	}
	addr, err := netip.ParseAddrPort(address)
	return addr.String(), err
}

// Resolvers are the upstream resolvers, other than this process itself.
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
