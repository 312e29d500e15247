// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/translate"
)

// podsOptions are the flags about where spaces' pods reach their DNS and API.
type podsOptions struct {
	address          string
	apiPort, dnsPort uint16
	upstreams        []string
	hostDomain       string
}

const resolvConf = "/etc/resolv.conf"

func (o *podsOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.address, "pods-address", "", "IP of this machine or pod, at which the spaces' pods reach it without their own addresses being masked: serves them cluster DNS and kubernetes.default. Neither if empty; pods then have the host's DNS")
	cmd.Flags().Uint16Var(&o.apiPort, "pods-port", 7444, "TLS port at --pods-address for kubernetes.default")
	cmd.Flags().Uint16Var(&o.dnsPort, "dns-port", 7453, "UDP and TCP port at --pods-address for cluster DNS")
	cmd.Flags().StringSliceVar(&o.upstreams, "dns-upstream", nil, "IP or IP:PORT of resolvers for names outside of the spaces; those of "+resolvConf+" if empty, 'none' for none")
	cmd.Flags().StringVar(&o.hostDomain, "host-domain", dns.DefaultDomain, "the host's own cluster domain, which tenants must not see into")
	for _, flag := range []string{"pods-address", "pods-port", "dns-port", "dns-upstream", "host-domain"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

func (o *podsOptions) check() error {
	if o.address == "" {
		return nil
	}
	addr, err := netip.ParseAddr(o.address)
	if err != nil || !addr.IsGlobalUnicast() {
		return fmt.Errorf("--pods-address=%s: want one IP address of this machine or pod that other machines reach", o.address)
	}
	if o.apiPort == 0 || o.dnsPort == 0 || o.apiPort == o.dnsPort {
		return fmt.Errorf("--pods-port=%d, --dns-port=%d: want two ports", o.apiPort, o.dnsPort)
	}
	if problems := validation.IsDNS1123Subdomain(o.hostDomain); len(problems) > 0 {
		return fmt.Errorf("--host-domain=%s: %s", o.hostDomain, problems[0])
	}
	if len(o.upstreams) == 1 && o.upstreams[0] == "none" {
		return nil
	}
	for _, upstream := range o.upstreams {
		if _, err := withPort(upstream); err != nil {
			return fmt.Errorf("--dns-upstream=%s: want IP or IP:PORT: %w", upstream, err)
		}
	}
	return nil
}

// suits refuses an address that no service would lead to: the host gives services
// addresses of the family of its range, and takes endpoints of that family only.
func (o *podsOptions) suits(services netip.Prefix) error {
	if addr := o.endpoint().Address; addr.Is4() != services.Addr().Is4() {
		return fmt.Errorf("--pods-address=%s: the host's services have addresses in %s, from which pods do not get to one of another family; name an address of that family",
			addr, services)
	}
	return nil
}

// endpoint is what the spaces' pods are told.
func (o *podsOptions) endpoint() translate.PodsEndpoint {
	addr, err := netip.ParseAddr(o.address)
	if err != nil {
		return translate.PodsEndpoint{}
	}
	return translate.PodsEndpoint{Address: addr.Unmap(), APIPort: int32(o.apiPort), DNSPort: int32(o.dnsPort)}
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
func (o *podsOptions) resolvers() (resolvers []string, err error) {
	all := o.upstreams
	if len(all) == 1 && all[0] == "none" {
		return nil, nil
	}
	if len(all) == 0 {
		if all, err = dns.SystemUpstreams(resolvConf); err != nil {
			return nil, fmt.Errorf("--dns-upstream: %w", err)
		}
	}
	for _, upstream := range all {
		if upstream, err = withPort(upstream); err != nil {
			return nil, fmt.Errorf("--dns-upstream: %w", err)
		}
		if upstream != net.JoinHostPort(o.address, strconv.Itoa(int(o.dnsPort))) {
			resolvers = append(resolvers, upstream)
		}
	}
	return resolvers, nil
}

// servePods serves the spaces' pods their DNS and their API.
func (p *platform) servePods(ctx context.Context) error {
	o := p.options.pods
	if !o.endpoint().Valid() {
		return nil
	}
	if err := p.serveDNS(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(int(o.apiPort))))
	if err != nil {
		return cannotListen("--pods-port", o.apiPort, err)
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
	p.say("Pods reach their space's DNS at %s, port %d, and its API at port %d", o.address, o.dnsPort, o.apiPort)
	return nil
}

func (p *platform) serveDNS(ctx context.Context) error {
	o := p.options.pods
	services, err := netip.ParsePrefix(p.shard.ServiceRange())
	if err != nil {
		return fmt.Errorf("read the host's service range: %w", err)
	}
	if err := o.suits(services); err != nil {
		return err
	}
	config := dns.Config{
		Source: p.shard.Host(), HostDomains: []string{o.hostDomain}, HostRanges: append([]netip.Prefix{services}, p.closed...), Logger: p.logger.WithName("dns"),
	}
	cluster, err := dns.SystemClusterDomains(resolvConf)
	if err != nil {
		return fmt.Errorf("--host-domain: %w", err)
	}
	config.HostDomains = append(config.HostDomains, cluster...)
	if config.Upstreams, err = o.resolvers(); err != nil {
		return err
	}
	at := net.JoinHostPort(o.address, strconv.Itoa(int(o.dnsPort)))
	udp, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at)
	if err != nil {
		return cannotListen("--dns-port", o.dnsPort, err)
	}
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		_ = udp.Close()
		return cannotListen("--dns-port", o.dnsPort, err)
	}
	server, err := dns.Serve(udp, tcp, config)
	if err != nil {
		_, _ = udp.Close(), tcp.Close()
		return err
	}
	p.onStop(func(context.Context) { server.Stop() })
	return nil
}

func cannotListen(flag string, port uint16, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%s=%d: the port is in use; stop what uses it or choose another", flag, port)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("--pods-address: it is not an address of this machine or pod: %w", err)
	default:
		return fmt.Errorf("%s=%d: %w", flag, port, err)
	}
}
