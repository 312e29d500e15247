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

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard/credentials"
)

// servePods serves DNS and their space's API to the spaces' pods.
func (p *Platform) servePods(ctx context.Context) error {
	o := &p.config.Pods
	if !o.Endpoint().Valid() {
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
		if service := p.manager.Host().Service(space, "default", "kubernetes"); service != nil {
			return service.Spec.ClusterIP
		}
		return ""
	}}
	server := gateway.ServePods(listener, gateway.Pods{
		SpaceAt: p.manager.Host().SpaceAt, Certificate: certificates.Get,
		Router: &gateway.Router{Lookup: p.lookup, TenantOf: p.tenantOf, Identify: p.clients.Refuse, Verify: p.manager.VerifyOwn, Limiter: p.limiter, UserOf: credentials.ClientOf, Audit: p.auditor.Audited, Meter: p.meter(), Traces: p.traces},
	}, p.logger)
	p.onStop(server.Stop)
	p.config.Progress("Pods reach their space's DNS at %s, port %d, and its API at port %d", o.Address, o.DNSPort, o.APIPort)
	return nil
}

func (p *Platform) serveDNS(ctx context.Context) error {
	o := &p.config.Pods
	services, err := netip.ParsePrefix(p.manager.ServiceRange())
	if err != nil {
		return fmt.Errorf("read the host's service range: %w", err)
	}
	if err := o.Suits(services); err != nil {
		return err
	}
	config := dns.Config{
		Source: p.manager.Host(), HostDomains: []string{o.HostDomain}, HostRanges: slices.Concat([]netip.Prefix{services}, p.manager.ClosedRanges()),
		Logger: p.logger.WithName("dns"),
	}
	cluster, err := dns.SystemClusterDomains(process.ResolvConf)
	if err != nil {
		return fielderror.New("host-domain", "", "%w", err)
	}
	config.HostDomains = append(config.HostDomains, cluster...)
	if config.Upstreams, err = o.Resolvers(); err != nil {
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
		return fielderror.New(field, port, "the port is in use; stop what uses it or choose another")
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fielderror.New("pods-address", "", "must be an address of this machine or pod: %w", err)
	default:
		return fielderror.New(field, port, "%w", err)
	}
}
