// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

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
