// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// schemaVersion is the version of the specification that the records follow:
// https://github.com/kubernetes/dns/blob/master/docs/specification.md
const schemaVersion = "1.1.0"

// answer is what there is to say to a question.
type answer struct {
	rcode                     int
	records, authority, extra []miekg.RR
	own                       bool // not from upstream
	// alias is where the last of records leads, if that is yet to be looked up.
	alias string
}

// zone is the domain of the spaces' own names: each space sees its own.
type zone struct {
	domain string // canonical
	source Source
	dashes *strings.Replacer // of what addresses are written with
	*scan                    // of the question that is being answered
}

func newZone(domain string, source Source) zone {
	return zone{domain: domain, source: source, dashes: strings.NewReplacer(".", "-", ":", "-")}
}

// askedBy is the zone for one question of a space's.
func (z zone) askedBy(t *tenant) zone {
	z.scan = &scan{queries: t.queries}
	return z
}

// refusedOr is the answer, unless the space has asked for too much to have it.
func (z zone) refusedOr(a answer) answer {
	if z.refused {
		return answer{rcode: miekg.RcodeRefused}
	}
	return a
}

// soa is what negative answers bear, so that resolvers know how long to keep
// them.
func soa(zone string) []miekg.RR {
	within := strings.TrimPrefix(zone, ".") // the root is in nothing
	return []miekg.RR{&miekg.SOA{
		Hdr: miekg.RR_Header{Name: zone, Rrtype: miekg.TypeSOA, Class: miekg.ClassINET, Ttl: ttl},
		Ns:  "ns.dns." + within, Mbox: "hostmaster." + within, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}}
}

// unknown says that there is no such name in a zone, empty that it has no record
// of the type.
func unknown(zone string) answer {
	return answer{rcode: miekg.RcodeNameError, authority: soa(zone), own: true}
}

func empty(zone string) answer { return answer{authority: soa(zone), own: true} }

func (z zone) unknown() answer { return unknown(z.domain) }

// found are records, or none of the type that was asked for.
func (z zone) found(records []miekg.RR) answer {
	if len(records) == 0 {
		return empty(z.domain)
	}
	return answer{records: records, own: true}
}

func (z zone) emptyIf(exists bool) answer {
	if exists {
		return empty(z.domain)
	}
	return z.unknown()
}

// lookup answers a question whose name is in the zone. Its names are compared
// in lower case, and given back as they were asked.
func (z zone) lookup(ctx context.Context, space string, q miekg.Question) answer {
	return z.refusedOr(z.find(ctx, space, q))
}

func (z zone) find(ctx context.Context, space string, q miekg.Question) answer {
	labels := miekg.SplitDomainName(miekg.CanonicalName(q.Name))
	labels = labels[:len(labels)-miekg.CountLabel(z.domain)]
	if len(labels) == 0 {
		if q.Qtype == miekg.TypeSOA {
			return z.found(soa(z.domain))
		}
		return empty(z.domain)
	}
	last := len(labels) - 1
	switch below := labels[:last]; labels[last] {
	case "svc":
		return z.services(ctx, space, below, q)
	case "pod":
		return z.pods(space, below, q)
	case "dns-version":
		if len(below) > 0 {
			return z.unknown()
		}
		if q.Qtype == miekg.TypeTXT {
			return z.found([]miekg.RR{&miekg.TXT{Hdr: header(q.Name, miekg.TypeTXT), Txt: []string{schemaVersion}}})
		}
		return empty(z.domain)
	default:
		return z.unknown()
	}
}

// services answers for SERVICE.NAMESPACE and what is below: HOST of an endpoint,
// or _PORT._PROTOCOL.
func (z zone) services(ctx context.Context, space string, labels []string, q miekg.Question) answer {
	n := len(labels)
	switch n {
	case 0:
		return empty(z.domain)
	case 1:
		return z.emptyIf(z.source.HasNamespace(space, labels[0]))
	}
	s := z.source.Service(space, labels[n-1], labels[n-2])
	if s == nil {
		return z.unknown()
	}
	name := strings.Join(labels[n-2:], ".") + ".svc." + z.domain
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		if n > 2 {
			return z.unknown()
		}
		return z.external(s, q)
	}
	switch rest := labels[:n-2]; {
	case len(rest) == 0 && q.Qtype == miekg.TypeSRV:
		return z.ports(ctx, s, name, q, func(string, corev1.Protocol) bool { return true })
	case len(rest) == 0:
		return z.found(addresses(q, z.addressesOf(ctx, s)))
	case len(rest) == 2:
		return z.port(ctx, s, name, rest, q)
	case len(rest) > 2:
		return z.unknown()
	case strings.HasPrefix(rest[0], "_"):
		return z.emptyIf(slices.ContainsFunc(z.portsOf(s), func(p corev1.ServicePort) bool {
			return p.Name != "" && rest[0] == protocolLabel(p.Protocol)
		}))
	default:
		return z.endpoint(ctx, s, rest[0], q)
	}
}

// external is an alias of a name elsewhere, which is looked up for whoever asks.
func (z zone) external(s *corev1.Service, q miekg.Question) answer {
	target := miekg.Fqdn(s.Spec.ExternalName)
	if _, ok := miekg.IsDomainName(target); !ok || target == "." {
		return empty(z.domain)
	}
	a := z.found([]miekg.RR{&miekg.CNAME{Hdr: header(q.Name, miekg.TypeCNAME), Target: target}})
	if q.Qtype != miekg.TypeCNAME {
		a.alias = target
	}
	return a
}

// endpoint answers for one endpoint of a service by its name.
func (z zone) endpoint(ctx context.Context, s *corev1.Service, host string, q miekg.Question) answer {
	var all []netip.Addr
	for e := range z.endpoints(ctx, s, z.source.Slices(s)) {
		if z.hostOf(s, e) != host {
			continue
		}
		if all = append(all, e.addr); len(all) == maxAddresses {
			break
		}
	}
	if len(all) == 0 {
		return z.unknown()
	}
	return z.found(addresses(q, all))
}

func (z zone) addressesOf(ctx context.Context, s *corev1.Service) (all []netip.Addr) {
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		for e := range z.endpoints(ctx, s, z.source.Slices(s)) {
			if all = append(all, e.addr); len(all) == maxAddresses {
				break
			}
		}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all
	}
	for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if addr, err := netip.ParseAddr(ip); err == nil {
			all = append(all, addr)
		}
	}
	return all
}

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

// endpoint is one address behind a service.
type endpoint struct {
	*discoveryv1.Endpoint
	addr  netip.Addr
	slice *discoveryv1.EndpointSlice
}

// endpoints yields those of a service that are to be shown, of some slices of
// its, in the order of their names: no more than maxScanned are looked at, and
// none when nobody waits for the answer any longer, or when the space has asked
// for too much.
func (z zone) endpoints(ctx context.Context, s *corev1.Service, of []*discoveryv1.EndpointSlice) iter.Seq[endpoint] {
	if !z.look(len(of)) {
		return func(func(endpoint) bool) {}
	}
	all := slices.SortedFunc(slices.Values(of), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return func(yield func(endpoint) bool) {
		left := maxScanned
		for _, slice := range all {
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				shown := ptr.Deref(e.Conditions.Ready, true) || s.Spec.PublishNotReadyAddresses
				for _, address := range e.Addresses {
					if left--; left < 0 || ctx.Err() != nil || !z.look(1) {
						return
					}
					addr, err := netip.ParseAddr(address)
					if err != nil || !shown {
						continue // a name, or nonsense
					}
					if !yield(endpoint{e, addr.Unmap(), slice}) {
						return
					}
				}
			}
		}
	}
}

// hostOf is the name of an endpoint below its service's: the host name of a pod
// that says it is in the service's subdomain, as a stateful set's do; or else
// one that is made of its address.
//
// On the host a pod has no subdomain, as there the service has another name.
func (z zone) hostOf(s *corev1.Service, e endpoint) string {
	if host := ptr.Deref(e.Hostname, ""); host != "" {
		return strings.ToLower(host)
	}
	id, _ := translate.IdentityOf(s)
	if pod := z.source.PodAt(id.Space, e.addr); pod != nil && pod.Spec.Hostname != "" {
		if of, ok := translate.IdentityOf(pod); ok && of.Namespace == id.Namespace && pod.Annotations[translate.AnnotationSubdomain] == id.Name {
			return strings.ToLower(pod.Spec.Hostname)
		}
	}
	return z.dashes.Replace(e.addr.String())
}

// portsOf are a service's ports, to be looked through.
func (z zone) portsOf(s *corev1.Service) []corev1.ServicePort {
	if !z.look(len(s.Spec.Ports)) {
		return nil
	}
	return s.Spec.Ports
}

// pods answers for ADDRESS.NAMESPACE, where the address is written with dashes
// and is that of a pod of the namespace: a name must not stand for an address of
// whoever asks for it.
func (z zone) pods(space string, labels []string, q miekg.Question) answer {
	switch len(labels) {
	case 0:
		return empty(z.domain)
	case 1:
		return z.emptyIf(z.source.HasNamespace(space, labels[0]))
	case 2:
	default:
		return z.unknown()
	}
	separator := ":"
	if strings.Count(labels[0], "-") == 3 && !strings.Contains(labels[0], "--") {
		separator = "."
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(labels[0], "-", separator))
	if err != nil || addr.Zone() != "" {
		return z.unknown()
	}
	pod := z.source.PodAt(space, addr)
	if pod == nil {
		return z.unknown()
	}
	if id, ok := translate.IdentityOf(pod); !ok || id.Namespace != labels[1] {
		return z.unknown()
	}
	return z.found(addresses(q, []netip.Addr{addr}))
}

func header(name string, t uint16) miekg.RR_Header {
	return miekg.RR_Header{Name: name, Rrtype: t, Class: miekg.ClassINET, Ttl: ttl}
}

// addresses are the records of the type that q asks for, each once.
func addresses(q miekg.Question, all []netip.Addr) (records []miekg.RR) {
	seen := make(map[netip.Addr]bool, len(all))
	for _, addr := range all {
		switch {
		case seen[addr]:
		case q.Qtype == miekg.TypeA && addr.Is4():
			records = append(records, &miekg.A{Hdr: header(q.Name, miekg.TypeA), A: addr.AsSlice()})
		case q.Qtype == miekg.TypeAAAA && addr.Is6():
			records = append(records, &miekg.AAAA{Hdr: header(q.Name, miekg.TypeAAAA), AAAA: addr.AsSlice()})
		}
		seen[addr] = true
	}
	return records
}

func protocolLabel(p corev1.Protocol) string {
	return "_" + strings.ToLower(string(cmp.Or(p, corev1.ProtocolTCP)))
}
