// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berth-dev/berth/translate"
)

// Zones of names that stand for addresses.
const (
	reverse4 = "in-addr.arpa."
	reverse6 = "ip6.arpa."
)

// reverseZone is the zone of addresses that a canonical name is in, "" if none.
func reverseZone(name string) string {
	for _, zone := range []string{reverse4, reverse6} {
		if miekg.IsSubDomain(zone, name) {
			return zone
		}
	}
	return ""
}

// addressIn reads the address that a canonical name stands for; ok is false for
// one that is no whole address.
func addressIn(name string) (addr netip.Addr, ok bool) {
	digits, is4 := strings.CutSuffix(name, "."+reverse4)
	if is4 {
		labels := strings.Split(digits, ".")
		slices.Reverse(labels)
		addr, err := netip.ParseAddr(strings.Join(labels, "."))
		return addr, err == nil && addr.Is4()
	}
	digits, is6 := strings.CutSuffix(name, "."+reverse6)
	labels := strings.Split(digits, ".")
	if !is6 || len(labels) != 32 {
		return addr, false
	}
	slices.Reverse(labels)
	var bytes [16]byte
	for i, label := range labels {
		nibble, err := strconv.ParseUint(label, 16, 4)
		if err != nil || len(label) != 1 {
			return addr, false
		}
		bytes[i/2] = bytes[i/2]<<4 | byte(nibble)
	}
	return netip.AddrFrom16(bytes), true
}

// pointers answers for an address of the space's own services: its cluster IPs,
// and endpoints of headless services. ok is false if it is none.
func (z zone) pointers(ctx context.Context, space string, addr netip.Addr, q miekg.Question) (a answer, ok bool) {
	var names []string
	if s := z.source.ServiceAt(space, addr); s != nil {
		names = append(names, z.nameOf(s))
	}
	headless := map[*corev1.Service][]*discoveryv1.EndpointSlice{}
	at := z.source.SlicesAt(space, addr)
	if !z.look(len(at)) {
		return z.refusedOr(a), true
	}
	for _, slice := range at {
		s := z.source.ServiceOf(slice)
		if s == nil || s.Spec.ClusterIP != corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		if headless[s] = append(headless[s], slice); len(headless) == maxPointers || ctx.Err() != nil {
			break
		}
	}
	for s, of := range headless {
		for e := range z.endpoints(ctx, s, of) {
			if e.addr != addr {
				continue
			}
			if name := z.hostOf(s, e) + "." + z.nameOf(s); !slices.Contains(names, name) {
				names = append(names, name)
			}
			if len(names) >= maxPointers {
				break
			}
		}
	}
	switch {
	case z.refused:
		return z.refusedOr(a), true
	case len(names) == 0:
		return answer{}, false
	}
	if q.Qtype != miekg.TypePTR {
		return empty(reverseZone(miekg.CanonicalName(q.Name))), true
	}
	slices.Sort(names)
	for _, name := range names {
		a.records = append(a.records, &miekg.PTR{Hdr: header(q.Name, miekg.TypePTR), Ptr: name})
	}
	a.own = true
	return a, true
}

// nameOf is a service's full name in its space.
func (z zone) nameOf(s *corev1.Service) string {
	id, _ := translate.IdentityOf(s)
	return id.Name + "." + id.Namespace + ".svc." + z.domain
}
