// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard/credentials"
	"github.com/berth-dev/berth/syncer"
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
	p.pods.SpaceAt, p.pods.Certificate = p.manager.Host().SpaceAt, certificates.Get
	server := gateway.ServePods(listener, p.pods, p.logger)
	p.onStop(server.Stop)
	p.config.Progress("Pods reach their space's DNS at %s, port %d, and its API at port %d", o.Address, o.DNSPort, o.APIPort)
	return nil
}

// routePods makes the handler of requests of pods. Those that other shards forward arrive without an endpoint for pods, too.
func (p *Platform) routePods() {
	p.pods.Router = &gateway.Router{
		Lookup: p.lookup, Elsewhere: p.elsewhereOfPod, TenantOf: p.tenantOf, Identify: p.clients.Refuse, Verify: p.manager.VerifyOwn, Limiter: p.limiter, UserOf: credentials.ClientOf, Audit: p.auditor.Audited, Meter: p.meter(), Traces: p.traces,
	}
}

// servePod returns a handler of requests of pods of a space.
func (p *Platform) servePod(space string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.pods.ServeSpace(space, w, r) })
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
		Source: ownSource{p.manager.Host()}, HostDomains: []string{o.HostDomain}, HostRanges: slices.Concat([]netip.Prefix{services}, p.manager.ClosedRanges()),
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

// ownSource is the host as the source of DNS, for pods of spaces that this process has. The cache has too little of
// other spaces: that a name doesn't exist would be a wrong answer.
type ownSource struct{ *syncer.Host }

// SpaceAt implements [dns.Source].
func (s ownSource) SpaceAt(addr netip.Addr) (space string, ok bool) { return s.OwnSpaceAt(addr) }

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
