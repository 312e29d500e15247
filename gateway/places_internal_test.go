// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
				if closing, _ := p.hold(pick(), flow{tenant: fmt.Sprintf("tenant %d", rapid.IntRange(0, 2).Draw(t, "tenant")), user: uint8(rapid.IntRange(0, 2).Draw(t, "user"))}); closing != nil {
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
				for user := range uint8(3) {
					if n, _ := h.of(user); !h.stranger && n > p.bounds.perUser() {
						t.Fatalf("user %d of %s has %d connections", user, name, n)
					}
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
	for i := range 3 {
		c := connect()
		if closing, err := p.hold(c, flow{"solar", uint8(i)}); closing != nil || err != nil {
			t.Fatalf("within the limit: %v", err)
		}
		conns = append(conns, c)
	}
	further := connect()
	if closing, err := p.hold(further, flow{"solar", 9}); closing != nil || err == nil {
		t.Error("a connection with a request is closed, or one beyond the limit is not refused")
	}
	p.note(conns[2], true)
	p.note(conns[1], true)
	if closing, err := p.hold(further, flow{"solar", 9}); closing != conns[2] || err != nil {
		t.Errorf("it's not the one closed that has been idle for longest: %v", err)
	}
	p.note(conns[2], false) // it has lost its place, and its server does not know yet
	p.give(conns[2])
	if p.taken != 3 {
		t.Errorf("%d connections are held", p.taken)
	}
}

// L1: one user of a tenant leaves others of it some connections, and makes place for a further one with an idle one of its own.
func TestHostileAUserLeavesOthersOfTheTenantConnections(t *testing.T) {
	p := newPlaces(Connections{Total: 100, PerClient: 16})
	hold := func(user uint8) (c, closing *boundConn, err error) {
		c = &boundConn{places: p}
		p.take(c, "address")
		closing, err = p.hold(c, flow{"solar", user})
		return c, closing, err
	}
	other, _, _ := hold(2)
	p.note(other, true)
	var last *boundConn
	for range p.bounds.perUser() {
		var err error
		if last, _, err = hold(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, closing, err := hold(1); closing != nil || !errors.Is(err, errConnections) {
		t.Errorf("beyond its part, a user gets a connection: %v", err)
	}
	if _, closing, err := hold(2); closing != nil || err != nil {
		t.Errorf("another user gets none: %v", err)
	}
	p.note(last, true)
	if _, closing, err := hold(1); closing != last || err != nil {
		t.Errorf("it's not the user's idle connection that makes place: %v", err)
	}
}

// L3: a client that resets its request before it is known whose that is has an idle connection.
func TestHostileResetsKeepNoConnectionBusy(t *testing.T) {
	p := newPlaces(Connections{Total: 100, PerClient: 16})
	c := &boundConn{places: p}
	p.take(c, "address")
	p.note(c, false)
	p.note(c, true)
	if _, err := p.hold(c, flow{"solar", 1}); err != nil || c.place.busy {
		t.Errorf("it is busy: %t, %v", c.place.busy, err)
	}
	p.note(c, false)
	if !c.place.busy {
		t.Error("with another request it is idle")
	}
}

// S7, L3: a connection that loses its place ends its handshake, too, and no longer waits for a turn in front of others.
func TestHostileConnectionsWithoutAPlaceTakeNoTurn(t *testing.T) {
	const perClient, attacks = 4, 20
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newHandshakes(inner, addressOf)
	release, err := listener.turns.take(t.Context(), flow{tenant: "another"}, listener.turns.total)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	bounds := Connections{Total: 100, PerClient: perClient}.bound(listener)
	none := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("no handshake gets as far")
	}
	server := newServer(none, http.NotFoundHandler(), logr.Discard())
	server.serve(bounds)
	defer server.Stop(t.Context())
	waiting := func() (n int) {
		listener.turns.mu.Lock()
		defer listener.turns.mu.Unlock()
		for _, l := range listener.turns.lines {
			for _, u := range l.users {
				n += len(u.tickets)
			}
		}
		return n
	}
	opened := 0
	for range attacks {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { _ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) }()
		opened++
		for want, end := min(opened, perClient), time.Now().Add(30*time.Second); waiting() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after %d connections %d handshakes wait, want %d", opened, waiting(), want)
			}
		}
	}
}
