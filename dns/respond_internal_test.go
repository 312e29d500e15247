// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"encoding/binary"
	"net/netip"
	"testing"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"
)

// nothing is a host without objects.
type nothing struct{}

func (nothing) SpaceAt(netip.Addr) (string, bool)                        { return "a", true }
func (nothing) PodAt(string, netip.Addr) *corev1.Pod                     { return nil }
func (nothing) Service(string, string, string) *corev1.Service           { return nil }
func (nothing) ServiceAt(string, netip.Addr) *corev1.Service             { return nil }
func (nothing) Slices(*corev1.Service) []*discoveryv1.EndpointSlice      { return nil }
func (nothing) SlicesAt(string, netip.Addr) []*discoveryv1.EndpointSlice { return nil }
func (nothing) ServiceOf(*discoveryv1.EndpointSlice) *corev1.Service     { return nil }
func (nothing) HasNamespace(string, string) bool                         { return false }

// hostile is a host whose looking up panics: a fault of ours that a tenant has
// found.
type hostile struct{ nothing }

func (hostile) Service(string, string, string) *corev1.Service { panic("found") }

func server(t testing.TB, source Source) *Server {
	t.Helper()
	c, err := Config{Source: source}.complete()
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(c)
	t.Cleanup(s.end)
	return s
}

// checkReply says what is wrong with an answer to a packet, whatever that is.
func checkReply(packet, reply []byte, tcp bool) string {
	if reply == nil {
		return ""
	}
	bound := udpSize
	if tcp {
		bound = miekg.MaxMsgSize
	}
	switch {
	case len(packet) < headerLen:
		return "what is too short for a query was answered"
	case binary.BigEndian.Uint16(packet[2:])&(1<<15) != 0:
		return "an answer was answered"
	case len(reply) > bound:
		return "the answer is too long"
	case reply[0] != packet[0] || reply[1] != packet[1]:
		return "the answer has another number"
	case reply[2]&0x80 == 0:
		return "the answer is a query"
	case new(miekg.Msg).Unpack(reply) != nil:
		return "the answer cannot be read"
	}
	return ""
}

// Whatever a pod sends, the process lives, and what it says is an answer.
func FuzzRespond(f *testing.F) {
	for _, name := range []string{
		"web.shop.svc.cluster.local.", "_http._tcp.web.shop.svc.cluster.local.", "1.1.96.10.in-addr.arpa.", "1-2-3-4.shop.pod.cluster.local.", ".", "x.",
	} {
		query := new(miekg.Msg).SetQuestion(name, miekg.TypeA)
		query.SetEdns0(4096, true)
		packet, err := query.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet, true)
	}
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c}, false) // a name that is itself
	s := server(f, nothing{})
	f.Fuzz(func(t *testing.T, packet []byte, tcp bool) {
		if wrong := checkReply(packet, s.respond(t.Context(), "a", packet, tcp), tcp); wrong != "" {
			t.Error(wrong)
		}
	})
}

// The same, for what is a query at least.
func TestEveryQueryIsAnswered(t *testing.T) {
	s := server(t, nothing{})
	rapid.Check(t, func(rt *rapid.T) {
		query := new(miekg.Msg)
		query.Id = rapid.Uint16().Draw(rt, "id")
		query.Opcode = rapid.IntRange(0, 15).Draw(rt, "opcode")
		name := ""
		for _, label := range rapid.SliceOfN(rapid.StringMatching(`[a-z0-9_*-]{1,20}`), 0, 6).Draw(rt, "labels") {
			name += label + "."
		}
		name += rapid.SampledFrom([]string{"svc.cluster.local.", "pod.cluster.local.", "cluster.local.", "in-addr.arpa.", "ip6.arpa.", "example.com."}).Draw(rt, "zone")
		query.Question = []miekg.Question{{Name: name, Qtype: rapid.Uint16().Draw(rt, "type"), Qclass: rapid.SampledFrom([]uint16{1, 3, 255}).Draw(rt, "class")}}
		if rapid.Bool().Draw(rt, "edns") {
			query.SetEdns0(rapid.Uint16().Draw(rt, "size"), rapid.Bool().Draw(rt, "dnssec"))
		}
		packet, err := query.Pack()
		if err != nil {
			rt.Skip(err)
		}
		tcp := rapid.Bool().Draw(rt, "tcp")
		reply := s.respond(t.Context(), "a", packet, tcp)
		if reply == nil {
			rt.Fatal("no answer")
		}
		if wrong := checkReply(packet, reply, tcp); wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// A fault of ours costs the query, and not the process of all spaces.
func TestAPanicCostsTheQuery(t *testing.T) {
	packet, err := new(miekg.Msg).SetQuestion("web.shop.svc.cluster.local.", miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply := new(miekg.Msg)
	if err := reply.Unpack(server(t, hostile{}).respond(t.Context(), "a", packet, false)); err != nil || reply.Rcode != miekg.RcodeServerFailure {
		t.Errorf("got %v, %v", reply, err)
	}
}
