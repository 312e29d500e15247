// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// L3: whatever clients do, they have no more connections than allowed, and nobody loses one while another client has more.
func TestHostileClientsTakeNobodysPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPlaces(Connections{Total: 12, PerClient: 8})
		var open []*boundConn
		pick := func() *boundConn { return open[rapid.IntRange(0, len(open)-1).Draw(t, "connection")] }
		leave := func(c *boundConn) {
			open = slices.DeleteFunc(open, func(other *boundConn) bool { return other == c })
			p.give(c) // again, for those that have lost their place
		}
		sizes := func() (tenants map[string]int, strangers int) {
			tenants = map[string]int{}
			for _, h := range p.holders {
				if h.stranger {
					strangers += h.size()
				} else {
					tenants[h.name] = h.size()
				}
			}
			return tenants, strangers
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			tenants, strangers := sizes()
			switch op := rapid.IntRange(0, 5).Draw(t, "step"); {
			case op < 2 || len(open) == 0:
				address := fmt.Sprintf("address %d", rapid.IntRange(0, 5).Draw(t, "address"))
				full := p.taken == p.bounds.Total
				of := map[*boundConn]place{}
				for _, c := range open {
					of[c] = c.place
				}
				c := &boundConn{places: p}
				closing := p.take(c, address)
				open = append(open, c)
				if closing == nil {
					break
				}
				loser := of[closing].holder
				if loser.name == address {
					leave(closing)
					break
				}
				if !full {
					t.Fatalf("%s loses a connection while there is place", loser.name)
				}
				for name, n := range tenants {
					if has := tenants[loser.name]; !loser.stranger && has < n || loser.stranger && strangers < n {
						t.Fatalf("%s loses a connection while %s has %d", loser.name, name, n)
					}
				}
				if !loser.stranger && tenants[loser.name] < strangers {
					t.Fatalf("%s loses a connection while strangers have %d", loser.name, strangers)
				}
				leave(closing)
			case op == 2:
				if closing, _ := p.hold(pick(), fmt.Sprintf("tenant %d", rapid.IntRange(0, 2).Draw(t, "tenant"))); closing != nil {
					leave(closing)
				}
			case op == 3:
				leave(pick())
			default:
				p.note(pick(), op == 4)
			}
			held := 0
			for name, h := range p.holders {
				held += h.size()
				if h.size() > p.bounds.PerClient || h.size() == 0 {
					t.Fatalf("%s has %d connections", name, h.size())
				}
			}
			if _, strangers = sizes(); held != p.taken || held != len(open) || held > p.bounds.Total || strangers != p.strangers {
				t.Fatalf("%d connections are held, %d of strangers; %d and %d are counted, %d are open", held, strangers, p.taken, p.strangers, len(open))
			}
		}
	})
}

// L3: of a tenant, the connection that has been idle for longest makes place for another one, and none with a request does.
func TestATenantKeepsTheConnectionsThatItUses(t *testing.T) {
	p := newPlaces(Connections{Total: 10, PerClient: 3})
	connect := func() *boundConn {
		c := &boundConn{places: p}
		if closing := p.take(c, "address"); closing != nil {
			t.Fatal("a connection is closed while there is place")
		}
		return c
	}
	var conns []*boundConn
	for range 3 {
		c := connect()
		if closing, err := p.hold(c, "solar"); closing != nil || err != nil {
			t.Fatalf("within the limit: %v", err)
		}
		conns = append(conns, c)
	}
	further := connect()
	if closing, err := p.hold(further, "solar"); closing != nil || err == nil {
		t.Error("a connection with a request is closed, or one beyond the limit is not refused")
	}
	p.note(conns[2], true)
	p.note(conns[1], true)
	if closing, err := p.hold(further, "solar"); closing != conns[2] || err != nil {
		t.Errorf("it's not the one closed that has been idle for longest: %v", err)
	}
	p.note(conns[2], false) // it has lost its place, and its server does not know yet
	p.give(conns[2])
	if p.taken != 3 {
		t.Errorf("%d connections are held", p.taken)
	}
}
