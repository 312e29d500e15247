// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"slices"
	"time"

	miekg "github.com/miekg/dns"
	"k8s.io/utils/clock"
)

// forwarder asks the world outside, for any space.
type forwarder struct {
	upstreams []string
	filter    *filter
	asking    chan struct{} // a place for each query under way
	clock     clock.Clock
}

// cacheKey tells answers apart. Each space keeps its own: what one asked for
// must not show in how fast another is answered.
type cacheKey struct {
	name  string
	qtype uint16
}

type cached struct {
	answer
	since, until time.Time
}

// forward answers a question that is not the cluster's, from the space's cache
// or from upstream.
func (f *forwarder) forward(ctx context.Context, t *tenant, q miekg.Question) answer {
	name := miekg.CanonicalName(q.Name)
	if zone := reverseZone(name); zone != "" {
		if addr, ok := addressIn(name); !ok || !f.filter.public(addr) {
			return unknown(zone)
		}
	} else if f.filter.hides(name) {
		return unknown(".")
	}
	if len(f.upstreams) == 0 {
		return answer{rcode: miekg.RcodeRefused}
	}
	a := f.fetch(ctx, t, name, q.Qtype)
	if a.rcode != miekg.RcodeSuccess || reverseZone(name) != "" || slices.ContainsFunc(a.records, isAddress) {
		return a
	}
	// There is such a name, but of no address so far. If it has one that is
	// hidden, then so is the name, whatever is asked about it.
	for _, other := range []uint16{miekg.TypeA, miekg.TypeAAAA} {
		if other == q.Qtype {
			continue
		}
		if b := f.fetch(ctx, t, name, other); b.rcode != miekg.RcodeSuccess {
			return b
		}
	}
	return a
}

func isAddress(rr miekg.RR) bool {
	return rr.Header().Rrtype == miekg.TypeA || rr.Header().Rrtype == miekg.TypeAAAA
}

// fetch gets what a tenant sees of one type of a name, from the space's cache or
// from upstream.
func (f *forwarder) fetch(ctx context.Context, t *tenant, name string, qtype uint16) answer {
	key, now := cacheKey{name, qtype}, f.clock.Now()
	if kept, ok := t.cache.Get(key); ok {
		if c := kept.(*cached); now.Before(c.until) {
			return c.aged(now)
		}
		t.cache.Remove(key)
	}
	if !t.forwards.TryAccept() {
		return answer{rcode: miekg.RcodeRefused}
	}
	if !t.forwarding.take() {
		return answer{rcode: miekg.RcodeServerFailure}
	}
	defer t.forwarding.give()
	select {
	case f.asking <- struct{}{}:
		defer func() { <-f.asking }()
	default:
		return answer{rcode: miekg.RcodeServerFailure}
	}
	reply, err := f.ask(ctx, name, qtype)
	if err != nil {
		return answer{rcode: miekg.RcodeServerFailure}
	}
	a := f.seen(reply)
	if life := lifeOf(a); life > 0 && reply.Len() <= maxCachedLen {
		t.cache.Add(key, &cached{answer: a, since: now, until: now.Add(life)})
	}
	return a
}

// seen is what of upstream's reply a tenant sees: never what it says besides the
// answer, which could be about anything. A name that is hidden and one that is
// not there look the same.
func (f *forwarder) seen(reply *miekg.Msg) answer {
	a := answer{rcode: reply.Rcode, records: reply.Answer}
	for _, rr := range reply.Ns {
		if _, ok := rr.(*miekg.SOA); ok && len(reply.Answer) == 0 {
			a.authority = append(a.authority, rr)
		}
	}
	if !f.filter.passes(a.records) || !f.filter.passes(a.authority) || a.rcode == miekg.RcodeNameError && len(a.records) == 0 {
		return unknown(".")
	}
	return a
}

var errNoAnswer = errors.New("no upstream answers")

// ask asks one upstream after the other. Each query has a number and a port of
// its own, so that nobody can guess them.
func (f *forwarder) ask(ctx context.Context, name string, qtype uint16) (*miekg.Msg, error) {
	for _, upstream := range f.upstreams {
		for _, network := range []string{"udp", "tcp"} {
			query := new(miekg.Msg)
			query.SetQuestion(name, qtype)
			query.SetEdns0(udpSize, false)
			client := &miekg.Client{Net: network, Timeout: askTimeout, UDPSize: udpSize}
			reply, _, err := client.ExchangeContext(ctx, query, upstream)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil || !answers(reply, query) || network == "udp" && reply.Truncated {
				if err == nil && reply.Truncated {
					continue // by TCP
				}
				break
			}
			if reply.Rcode == miekg.RcodeSuccess || reply.Rcode == miekg.RcodeNameError {
				return reply, nil
			}
			break
		}
	}
	return nil, errNoAnswer
}

// answers reports whether a reply is one to the query.
func answers(reply, query *miekg.Msg) bool {
	return reply.Response && reply.Id == query.Id && len(reply.Question) == 1 && reply.Question[0].Qtype == query.Question[0].Qtype &&
		reply.Question[0].Qclass == miekg.ClassINET && miekg.CanonicalName(reply.Question[0].Name) == query.Question[0].Name
}

// lifeOf is how long an answer may be kept.
func lifeOf(a answer) time.Duration {
	life := maxCachedTTL
	for _, rr := range a.records {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
	}
	for _, rr := range a.authority {
		life = min(life, time.Duration(rr.Header().Ttl)*time.Second)
		if negative, ok := rr.(*miekg.SOA); ok {
			life = min(life, time.Duration(negative.Minttl)*time.Second)
		}
	}
	if len(a.records)+len(a.authority) == 0 {
		return 0 // it does not say
	}
	return life
}

// aged is a kept answer, as good for that much less. The one that is kept is
// shared by all who ask, and stays as it is.
func (c *cached) aged(now time.Time) answer {
	age := uint32(max(0, now.Sub(c.since)/time.Second)) // bounded by maxCachedTTL
	older := func(records []miekg.RR) (out []miekg.RR) {
		for _, rr := range records {
			rr = miekg.Copy(rr)
			rr.Header().Ttl -= min(age, rr.Header().Ttl)
			out = append(out, rr)
		}
		return out
	}
	a := c.answer
	a.records, a.authority = older(a.records), older(a.authority)
	return a
}
