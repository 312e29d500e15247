// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// port answers for _PORT._PROTOCOL of a service.
func (z zone) port(ctx context.Context, s *corev1.Service, name string, labels []string, q miekg.Question) answer {
	port, named := strings.CutPrefix(labels[0], "_")
	if !named || port == "" {
		return z.unknown()
	}
	is := func(name string, protocol corev1.Protocol) bool {
		return name == port && labels[1] == protocolLabel(protocol)
	}
	if !slices.ContainsFunc(z.portsOf(s), func(p corev1.ServicePort) bool { return is(p.Name, p.Protocol) }) {
		return z.unknown()
	}
	if q.Qtype != miekg.TypeSRV {
		return empty(z.domain)
	}
	return z.ports(ctx, s, name, q, is)
}

// ports are SRV records of those ports of a service that are meant, with the
// addresses of what they lead to: no more than are of any use, for a tenant
// chooses how many endpoints there are, and how many ports.
func (z zone) ports(ctx context.Context, s *corev1.Service, name string, q miekg.Question, meant func(name string, p corev1.Protocol) bool) answer {
	var records, extra []miekg.RR
	seen := map[string]bool{}
	add := func(target string, port int32, addrs []netip.Addr) (more bool) {
		if port < 0 || port > math.MaxUint16 {
			return true // the host lets none such in
		}
		records = append(records, &miekg.SRV{Hdr: header(q.Name, miekg.TypeSRV), Weight: 100, Port: uint16(port), Target: target})
		if !seen[target] && len(extra) < maxAddresses {
			seen[target] = true
			for _, t := range []uint16{miekg.TypeA, miekg.TypeAAAA} {
				extra = append(extra, addresses(miekg.Question{Name: target, Qtype: t}, addrs)...)
			}
		}
		return len(records) < maxRecords && ctx.Err() == nil
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		z.servicePorts(ctx, s, name, meant, add)
	} else {
		z.endpointPorts(ctx, s, name, meant, add)
	}
	out := z.found(records)
	out.extra = extra
	return out
}

func (z zone) servicePorts(ctx context.Context, s *corev1.Service, name string, meant func(string, corev1.Protocol) bool, add func(string, int32, []netip.Addr) bool) {
	addrs := z.addressesOf(ctx, s)
	for _, p := range z.portsOf(s) {
		if meant(p.Name, p.Protocol) && !add(name, p.Port, addrs) {
			return
		}
	}
}

func (z zone) endpointPorts(ctx context.Context, s *corev1.Service, name string, meant func(string, corev1.Protocol) bool, add func(string, int32, []netip.Addr) bool) {
	type record struct {
		host string
		addr netip.Addr
		port int32
	}
	once := map[record]bool{}
	var of *discoveryv1.EndpointSlice
	var ports []discoveryv1.EndpointPort // of that slice, that are meant
	for e := range z.endpoints(ctx, s, z.source.Slices(s)) {
		if e.slice != of {
			of = e.slice
			if !z.look(len(of.Ports)) {
				return
			}
			ports = slices.DeleteFunc(slices.Clone(of.Ports), func(p discoveryv1.EndpointPort) bool {
				return !meant(ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP))
			})
		}
		host := z.hostOf(s, e)
		for _, p := range ports {
			r := record{host, e.addr, ptr.Deref(p.Port, 0)}
			if !z.look(1) {
				return
			}
			if once[r] {
				continue
			}
			once[r] = true
			if !add(host+"."+name, r.port, []netip.Addr{e.addr}) {
				return
			}
		}
	}
}

// portsOf are a service's ports, to be looked through.
func (z zone) portsOf(s *corev1.Service) []corev1.ServicePort {
	if !z.look(len(s.Spec.Ports)) {
		return nil
	}
	return s.Spec.Ports
}

func protocolLabel(p corev1.Protocol) string {
	return "_" + strings.ToLower(string(cmp.Or(p, corev1.ProtocolTCP)))
}
