// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"container/list"
	"errors"
	"sync"
)

// errConnections means that a tenant uses all connections that it may have.
var errConnections = errors.New("the tenant has requests on as many connections as it may have at once: send more of them on one connection (HTTP/2), or end some")

// places divides the connections of a server between clients, so that none keeps others out: one that connects while there is no place
// gets that of the client that has most. Clients that have not proved who they are count as one there, however many addresses they have.
// It is safe for concurrent use.
type places struct {
	bounds Connections

	mu               sync.Mutex
	taken, strangers int
	holders          map[string]*holder
}

// holder is a client: a tenant, or an address of strangers, of which nothing has been proved.
type holder struct {
	name     string
	stranger bool
	// idle and busy are its connections, [*boundConn], those first that have been so for longest. Strangers have none that is busy: they
	// choose what that is.
	idle, busy list.List
}

// place is where a connection is kept.
type place struct {
	holder *holder
	user   uint8 // of a tenant
	busy   bool
	quiet  bool // a stranger's, without a request: the client has reset it
	at     *list.Element
}

func newPlaces(bounds Connections) *places {
	return &places{bounds: bounds, holders: map[string]*holder{}}
}

func (h *holder) size() int { return h.idle.Len() + h.busy.Len() }

func (h *holder) list(busy bool) *list.List {
	if busy {
		return &h.busy
	}
	return &h.idle
}

// longestIdle returns the connection that the holder needs least; nil if all are busy.
func (h *holder) longestIdle() *boundConn {
	if h.idle.Len() == 0 {
		return nil
	}
	return h.idle.Front().Value.(*boundConn)
}

// spare returns the connection that the holder loses for others. If all are busy, the newest has done the least work.
func (h *holder) spare() *boundConn {
	if c := h.longestIdle(); c != nil {
		return c
	}
	return h.busy.Back().Value.(*boundConn)
}

// take gives a new connection from an address a place. The caller must close the one that it returns, if any, which has lost its place.
func (p *places) take(c *boundConn, address string) (closing *boundConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.holders[address]; h != nil && h.size() >= p.bounds.PerClient {
		closing = h.spare()
	} else if p.taken >= p.bounds.Total {
		closing = p.largest().spare()
	}
	if closing != nil {
		p.remove(closing)
	}
	p.add(c, address, true)
	return closing
}

// hold makes a connection with a request that of a user of a tenant. The caller must close the connection that it returns, if any.
func (p *places) hold(c *boundConn, who flow) (closing *boundConn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place.holder == nil || c.place.holder.name == who.tenant {
		return nil, nil
	}
	if h := p.holders[who.tenant]; h != nil {
		own, idle := h.of(who.user)
		switch {
		case own >= p.bounds.perUser():
			closing = idle
		case h.size() >= p.bounds.PerClient:
			closing = h.longestIdle()
		default:
			p.move(c, who)
			return nil, nil
		}
		if closing == nil {
			return nil, errConnections
		}
		p.remove(closing)
	}
	p.move(c, who)
	return closing, nil
}

// move gives a connection of a stranger, or of another tenant, to a user.
func (p *places) move(c *boundConn, who flow) {
	quiet := c.place.quiet
	p.remove(c)
	p.add(c, who.tenant, false)
	c.place.user = who.user
	p.setIdle(c, quiet)
}

// of returns how many connections a user has, and which of them has been idle for longest; nil if all are busy.
func (h *holder) of(user uint8) (n int, idle *boundConn) {
	for _, l := range []*list.List{&h.idle, &h.busy} {
		for at := l.Front(); at != nil; at = at.Next() {
			c := at.Value.(*boundConn)
			if c.place.user != user {
				continue
			}
			if n++; idle == nil && !c.place.busy {
				idle = c
			}
		}
	}
	return n, idle
}

// note notes whether a connection is idle.
func (p *places) note(c *boundConn, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setIdle(c, idle)
}

func (p *places) setIdle(c *boundConn, idle bool) {
	h := c.place.holder
	switch {
	case h == nil:
	case h.stranger:
		c.place.quiet = idle
	case c.place.busy == idle:
		h.list(c.place.busy).Remove(c.place.at)
		c.place.busy, c.place.at = !idle, h.list(!idle).PushBack(c)
	}
}

// give gives the place of a connection back, if it has one.
func (p *places) give(c *boundConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place.holder != nil {
		p.remove(c)
	}
}

// largest returns the holder that has most connections, or of strangers the address that has most, if they have more together. There must
// be a connection.
func (p *places) largest() *holder {
	tenant, stranger := &holder{}, &holder{}
	for _, h := range p.holders {
		switch {
		case h.stranger && h.size() > stranger.size():
			stranger = h
		case !h.stranger && h.size() > tenant.size():
			tenant = h
		}
	}
	if p.strangers >= tenant.size() {
		return stranger
	}
	return tenant
}

func (p *places) add(c *boundConn, name string, stranger bool) {
	h := p.holders[name]
	if h == nil {
		h = &holder{name: name, stranger: stranger}
		p.holders[name] = h
	}
	c.place = place{holder: h, busy: !stranger, at: h.list(!stranger).PushBack(c)}
	p.taken++
	if stranger {
		p.strangers++
	}
}

func (p *places) remove(c *boundConn) {
	h := c.place.holder
	h.list(c.place.busy).Remove(c.place.at)
	c.place = place{}
	if h.size() == 0 {
		delete(p.holders, h.name)
	}
	p.taken--
	if h.stranger {
		p.strangers--
	}
}
