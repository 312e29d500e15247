// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// crowded is a host where a space has written as many endpoints as it may, and
// more, for one service.
type crowded struct {
	nothing
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (c crowded) Service(string, string, string) *corev1.Service           { return c.service }
func (c crowded) Slices(*corev1.Service) []*discoveryv1.EndpointSlice      { return c.slices }
func (c crowded) SlicesAt(string, netip.Addr) []*discoveryv1.EndpointSlice { return c.slices }
func (c crowded) ServiceOf(*discoveryv1.EndpointSlice) *corev1.Service     { return c.service }

func crowd(clusterIP string) crowded {
	v := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "many", UID: "u"}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP},
	}
	for i := range 5000 {
		v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP})
	}
	c := crowded{service: translate.Space{Name: "a"}.Service(v)}
	for i := range 20 {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%02d", i)}}
		for j := range 100 {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(fmt.Sprintf("p%d", j)), Port: ptr.To(int32(j + 1))})
		}
		for j := range 1000 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{netip.AddrFrom4([4]byte{10, byte(i), byte(j / 250), byte(j % 250)}).String()},
				Hostname:  ptr.To("same"),
			})
		}
		for j := range 50 { // one address by many names
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.99.0.1"}, Hostname: ptr.To(fmt.Sprintf("h%d", j))})
		}
		c.slices = append(c.slices, slice)
	}
	return c
}

// S6: what one packet makes the process hold does not grow with what its
// sender's space has written: endpoints times ports would be millions of records,
// made before the answer is cut to what fits.
func TestOneQuestionCostsABoundedNumberOfRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		clusterIP, name string
		qtype           uint16
		records, extra  int
	}{
		"SRV of a headless service":  {corev1.ClusterIPNone, "many.shop.svc.cluster.local.", miekg.TypeSRV, maxRecords, maxAddresses},
		"SRV of one of its ports":    {corev1.ClusterIPNone, "_p7._tcp.many.shop.svc.cluster.local.", miekg.TypeSRV, maxRecords, maxAddresses},
		"SRV of a service's ports":   {"10.96.0.7", "many.shop.svc.cluster.local.", miekg.TypeSRV, maxRecords, maxAddresses},
		"A of a headless service":    {corev1.ClusterIPNone, "many.shop.svc.cluster.local.", miekg.TypeA, maxAddresses, 0},
		"A of endpoints of one name": {corev1.ClusterIPNone, "same.many.shop.svc.cluster.local.", miekg.TypeA, maxAddresses, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, crowd(tc.clusterIP))
			q := miekg.Question{Name: tc.name, Qtype: tc.qtype, Qclass: miekg.ClassINET}
			a := zoneOf(s).lookup(t.Context(), "a", q)
			if len(a.records) == 0 || len(a.records) > tc.records || len(a.extra) > tc.extra {
				t.Errorf("%d records and %d beside, want at most %d and %d", len(a.records), len(a.extra), tc.records, tc.extra)
			}
			packed := pack(new(miekg.Msg).SetQuestion(tc.name, tc.qtype), a, true)
			if reply := new(miekg.Msg); reply.Unpack(packed) != nil || len(reply.Answer) == 0 {
				t.Errorf("the client gets %v", reply)
			}
		})
	}
	t.Run("PTR", func(t *testing.T) {
		s := server(t, crowd(corev1.ClusterIPNone))
		q := miekg.Question{Name: "1.0.99.10.in-addr.arpa.", Qtype: miekg.TypePTR, Qclass: miekg.ClassINET}
		if a, ok := zoneOf(s).pointers(t.Context(), "a", netip.MustParseAddr("10.99.0.1"), q); !ok || len(a.records) > maxPointers {
			t.Errorf("%d records, %v", len(a.records), ok)
		}
	})
}

func zoneOf(s *Server) zone { return s.zone.askedBy(s.tenants.of("a")) }

// A query that nobody waits for any longer looks through no endpoints.
func TestALookupEndsWithItsQuery(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := crowd(corev1.ClusterIPNone)
	for range zoneOf(server(t, c)).endpoints(ctx, c.service, c.slices) {
		t.Fatal("it looked on")
	}
}

// The scan itself is bounded: names of endpoints cost the same to miss as to find.
func TestAMissLooksThroughABoundedNumberOfEndpoints(t *testing.T) {
	c := crowd(corev1.ClusterIPNone)
	n := 0
	for range zoneOf(server(t, c)).endpoints(t.Context(), c.service, c.slices) {
		n++
	}
	if n != maxScanned {
		t.Errorf("looked at %d endpoints, want %d", n, maxScanned)
	}
}

// costly counts what is looked up, and has no names by which that is spared.
type costly struct {
	crowded
	pods *atomic.Int64
}

func (c costly) PodAt(string, netip.Addr) *corev1.Pod { c.pods.Add(1); return nil }

func (c costly) ServiceAt(string, netip.Addr) *corev1.Service { return nil }

// N1, L1: who asks for what is not there pays for what is looked through, by the
// space's own rate; other spaces' questions are answered as before.
func TestASpacePaysForWhatItsQuestionsLookThrough(t *testing.T) {
	endpoints := func(c *crowded) {
		for _, slice := range c.slices {
			for i := range slice.Endpoints {
				slice.Endpoints[i].Hostname = nil
			}
		}
	}
	manySlices := func(c *crowded) { c.slices = slices.Repeat([]*discoveryv1.EndpointSlice{{}}, 20_000) }
	repeated := func(c *crowded) { // one record, again and again
		for _, slice := range c.slices {
			for i := range slice.Endpoints {
				slice.Endpoints[i] = discoveryv1.Endpoint{Addresses: []string{"10.99.0.1"}, Hostname: ptr.To("same")}
			}
			for i := range slice.Ports {
				slice.Ports[i].Port = ptr.To(int32(80))
			}
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		crowd   func(*crowded)
		name    string
		qtype   uint16
		answers int // at most, of a burst of 2000
	}{
		"Endpoints": {"each is looked at", endpoints, "miss.many.shop.svc.cluster.local.", miekg.TypeA, 50},
		"Slices":    {"they are sorted", manySlices, "miss.many.shop.svc.cluster.local.", miekg.TypeA, 10},
		"Ports":     {"", manySlices, "_miss._tcp.many.shop.svc.cluster.local.", miekg.TypeA, 40},
		"Protocols": {"", manySlices, "_miss.many.shop.svc.cluster.local.", miekg.TypeA, 40},
		"SRV":       {"ports times endpoints", repeated, "many.shop.svc.cluster.local.", miekg.TypeSRV, 1},
		"PTR":       {"one address in many slices", manySlices, "1.0.99.10.in-addr.arpa.", miekg.TypePTR, 10},
	} {
		t.Run(name, func(t *testing.T) {
			c := costly{crowd(corev1.ClusterIPNone), &atomic.Int64{}}
			tc.crowd(&c.crowded)
			config, err := Config{Source: c, Clock: clocktesting.NewFakeClock(time.Now())}.complete()
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(config)
			defer s.end()
			packet, err := new(miekg.Msg).SetQuestion(tc.name, tc.qtype).Pack()
			if err != nil {
				t.Fatal(err)
			}
			ask := func(space string) (rcode int) {
				reply := new(miekg.Msg)
				if err := reply.Unpack(s.respond(t.Context(), space, packet, true)); err != nil {
					t.Fatal(err)
				}
				return reply.Rcode
			}
			answers := 0
			for range 200 {
				if ask("a") != miekg.RcodeRefused {
					answers++
				}
			}
			if answers > tc.answers || c.pods.Load() > 2000*looksPerQuery+200*looksPerQuery {
				t.Errorf("%s: %d of 200 questions were answered, want at most %d; %d pods were looked up", tc.reason, answers, tc.answers, c.pods.Load())
			}
			if tc.answers > 1 && ask("b") == miekg.RcodeRefused {
				t.Error("another space's question is refused")
			}
		})
	}
}
