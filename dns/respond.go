// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime/debug"

	miekg "github.com/miekg/dns"
)

const headerLen = 12 // of a message, in bytes

// respond answers one query of a space's pod. The result
// is nil if there is nothing to say: what is no query could have been sent to
// have the answer go elsewhere.
//
// Whatever a tenant sends must not end the process, which holds other tenants'
// spaces: a panic costs the query.
func (s *Server) respond(ctx context.Context, space string, packet []byte, tcp bool) (reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.config.Logger.Error(fmt.Errorf("panic: %v", p), "Could not answer a DNS query", "space", space, "stack", string(debug.Stack()))
			reply = status(packet, miekg.RcodeServerFailure)
		}
	}()
	if rcode, ok := check(packet); !ok {
		return nil
	} else if rcode != miekg.RcodeSuccess {
		return status(packet, rcode)
	}
	query := new(miekg.Msg)
	if err := query.Unpack(packet); err != nil || len(query.Question) != 1 {
		return status(packet, miekg.RcodeFormatError)
	}
	a := s.answer(ctx, space, query)
	return pack(query, a, tcp)
}

// check looks at the head of a message: ok is false for what is no query.
func check(packet []byte) (rcode int, ok bool) {
	if len(packet) < headerLen {
		return 0, false
	}
	bits := binary.BigEndian.Uint16(packet[2:])
	count := func(section int) uint16 { return binary.BigEndian.Uint16(packet[4+2*section:]) }
	switch {
	case bits&(1<<15) != 0: // an answer
		return 0, false
	case bits>>11&0xf != miekg.OpcodeQuery:
		return miekg.RcodeNotImplemented, true
	case count(0) != 1 || count(1) != 0 || count(2) != 0 || count(3) > 2:
		return miekg.RcodeFormatError, true
	}
	return miekg.RcodeSuccess, true
}

// status is an answer that needs no understanding of the query beyond its head.
func status(packet []byte, rcode int) []byte {
	if len(packet) < headerLen {
		return nil
	}
	reply := make([]byte, headerLen)
	copy(reply, packet[:2])
	bits := binary.BigEndian.Uint16(packet[2:])
	binary.BigEndian.PutUint16(reply[2:], 1<<15|bits&(0xf<<11|1<<8)|uint16(rcode)&0xf) // four bits
	return reply
}

func (s *Server) answer(ctx context.Context, space string, query *miekg.Msg) answer {
	q := query.Question[0]
	switch opt := query.IsEdns0(); {
	case opt != nil && opt.Version() != 0:
		return answer{rcode: miekg.RcodeBadVers}
	case q.Qclass != miekg.ClassINET:
		return answer{rcode: miekg.RcodeRefused}
	}
	switch q.Qtype {
	case miekg.TypeAXFR, miekg.TypeIXFR:
		return answer{rcode: miekg.RcodeRefused}
	case miekg.TypeANY, miekg.TypeMAILA, miekg.TypeMAILB, miekg.TypeOPT, miekg.TypeTSIG, miekg.TypeTKEY: // RFC 8482
		return answer{rcode: miekg.RcodeNotImplemented}
	}
	return s.follow(ctx, space, q)
}

// follow answers a question, and those that its aliases lead to.
func (s *Server) follow(ctx context.Context, space string, q miekg.Question) answer {
	var all answer
	for range maxChain {
		next := s.resolve(ctx, space, q)
		next.records = append(all.records, next.records...)
		next.own = next.own && (all.own || len(all.records) == 0)
		all = next
		if all.alias == "" {
			return all
		}
		q.Name = all.alias
	}
	all.alias, all.rcode = "", miekg.RcodeServerFailure // in a circle
	return all
}

// resolve answers one question from wherever its answer is.
func (s *Server) resolve(ctx context.Context, space string, q miekg.Question) answer {
	name, t := miekg.CanonicalName(q.Name), s.tenants.of(space)
	zone := s.zone.askedBy(t)
	if miekg.IsSubDomain(s.zone.domain, name) {
		return zone.lookup(ctx, space, q)
	}
	if reverseZone(name) != "" {
		if addr, ok := addressIn(name); ok {
			if a, ok := zone.pointers(ctx, space, addr, q); ok {
				return a
			}
		}
	}
	return s.forwarder.forward(ctx, t, q)
}

// pack writes an answer down as large as the client takes it. By UDP it is never
// many times the query, whose sender is a pod that is known.
func pack(query *miekg.Msg, a answer, tcp bool) []byte {
	reply := new(miekg.Msg)
	reply.SetReply(query)
	reply.Rcode, reply.Authoritative, reply.RecursionAvailable, reply.Compress = a.rcode, a.own, true, true
	reply.Answer, reply.Ns, reply.Extra = a.records, a.authority, a.extra
	size := miekg.MinMsgSize
	if opt := query.IsEdns0(); opt != nil {
		size = min(udpSize, max(size, int(opt.UDPSize())))
		reply.SetEdns0(udpSize, false)
	}
	if tcp {
		size = miekg.MaxMsgSize
	}
	reply.Truncate(size)
	packed, err := reply.Pack()
	if err != nil || len(packed) > size {
		reply.Answer, reply.Ns, reply.Extra, reply.Rcode = nil, nil, nil, miekg.RcodeServerFailure
		if packed, err = reply.Pack(); err != nil {
			return nil
		}
	}
	return packed
}
