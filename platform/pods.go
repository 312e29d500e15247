// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/gateway"
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

const resolvConf = "/etc/resolv.conf"

func (p *Pods) check() error {
	if p.Address == "" {
		return nil
	}
	addr, err := netip.ParseAddr(p.Address)
	if err != nil || !addr.IsGlobalUnicast() {
		return fieldError("pods-address", p.Address, "want one IP address of this machine or pod that other machines reach")
	}
	if p.APIPort == 0 || p.DNSPort == 0 || p.APIPort == p.DNSPort {
		return fieldError("pods-port", p.APIPort, "want two ports: dns-port is %d", p.DNSPort)
	}
	if err := p.checkSelector(); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(p.HostDomain); len(problems) > 0 {
		return fieldError("host-domain", p.HostDomain, "%s", problems[0])
	}
	if len(p.Upstreams) == 1 && p.Upstreams[0] == "none" {
		return nil
	}
	for _, upstream := range p.Upstreams {
		if _, err := withPort(upstream); err != nil {
			return fieldError("dns-upstream", upstream, "want IP or IP:PORT: %w", err)
		}
	}
	return nil
}

// suits refuses an address that no service would lead to: the host gives services
// addresses of the family of its range, and takes endpoints of that family only.
func (p *Pods) suits(services netip.Prefix) error {
	if addr := p.endpoint().Address; addr.Is4() != services.Addr().Is4() {
		return fieldError("pods-address", addr, "the host's services have addresses in %s, from which pods do not get to one of another family; name an address of that family",
			services)
	}
	return nil
}

// endpoint is what the spaces' pods are told.
func (p *Pods) endpoint() translate.PodsEndpoint {
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
		return fieldError("pods-selector", p.Selector, "want it together with --pods-namespace, which is %q: network policies select the pods by both", p.Namespace)
	}
	if _, err := labels.ConvertSelectorToLabelsMap(p.Selector); err != nil {
		return fieldError("pods-selector", p.Selector, "want KEY=VALUE,... of the labels of Berth's own pods: %w", err)
	}
	if problems := validation.IsDNS1123Label(p.Namespace); p.Namespace != "" && len(problems) > 0 {
		return fieldError("pods-namespace", p.Namespace, "%s", problems[0])
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

// resolvers are the upstream resolvers, other than this process itself.
func (p *Pods) resolvers() (resolvers []string, err error) {
	all := p.Upstreams
	if len(all) == 1 && all[0] == "none" {
		return nil, nil
	}
	if len(all) == 0 {
		if all, err = dns.SystemUpstreams(resolvConf); err != nil {
			return nil, fieldError("dns-upstream", "", "%w", err)
		}
	}
	for _, upstream := range all {
		if upstream, err = withPort(upstream); err != nil {
			return nil, fieldError("dns-upstream", "", "%w", err)
		}
		if upstream != net.JoinHostPort(p.Address, strconv.Itoa(int(p.DNSPort))) {
			resolvers = append(resolvers, upstream)
		}
	}
	return resolvers, nil
}

// servePods serves the spaces' pods their DNS and their API.
func (p *Platform) servePods(ctx context.Context) error {
	o := &p.config.Pods
	if !o.endpoint().Valid() {
		return nil
	}
	if err := p.serveDNS(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Address, strconv.Itoa(int(o.APIPort))))
	if err != nil {
		return cannotListen("pods-port", o.APIPort, err)
	}
	certificates := &gateway.PodCertificates{CA: p.ca, Domain: dns.DefaultDomain, Address: func(space string) string {
		if service := p.shard.Host().Service(space, "default", "kubernetes"); service != nil {
			return service.Spec.ClusterIP
		}
		return ""
	}}
	server := gateway.ServePods(listener, gateway.Pods{
		SpaceAt: p.shard.Host().SpaceAt, Certificate: certificates.Get,
		Router: &gateway.Router{Lookup: p.lookup, Limiter: p.limiter, Meter: p.metrics, Traces: p.traces},
	}, p.logger)
	p.onStop(server.Stop)
	p.config.Progress("Pods reach their space's DNS at %s, port %d, and its API at port %d", o.Address, o.DNSPort, o.APIPort)
	return nil
}

func (p *Platform) serveDNS(ctx context.Context) error {
	o := &p.config.Pods
	services, err := netip.ParsePrefix(p.shard.ServiceRange())
	if err != nil {
		return fmt.Errorf("read the host's service range: %w", err)
	}
	if err := o.suits(services); err != nil {
		return err
	}
	config := dns.Config{
		Source: p.shard.Host(), HostDomains: []string{o.HostDomain}, HostRanges: slices.Concat([]netip.Prefix{services}, p.closed, p.config.specs.usual.closed),
		Logger: p.logger.WithName("dns"),
	}
	cluster, err := dns.SystemClusterDomains(resolvConf)
	if err != nil {
		return fieldError("host-domain", "", "%w", err)
	}
	config.HostDomains = append(config.HostDomains, cluster...)
	if config.Upstreams, err = o.resolvers(); err != nil {
		return err
	}
	at := net.JoinHostPort(o.Address, strconv.Itoa(int(o.DNSPort)))
	udp, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return cannotListen("dns-port", o.DNSPort, err)
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		_ = udp.Close()
		return cannotListen("dns-port", o.DNSPort, err)
	}
	server, err := dns.Serve(udp, tcp, config)
	if err != nil {
		_, _ = udp.Close(), tcp.Close()
		return err
	}
	p.onStop(func(context.Context) { server.Stop() })
	return nil
}

func cannotListen(field string, port uint16, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fieldError(field, port, "the port is in use; stop what uses it or choose another")
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fieldError("pods-address", "", "it is not an address of this machine or pod: %w", err)
	default:
		return fieldError(field, port, "%w", err)
	}
}
