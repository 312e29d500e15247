// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/dns"
)

// S6: who is no pod of a space's is told nothing, and cannot have others told
// much: refusals are as small as a message can be, and few.
func TestStrangersAreRefused(t *testing.T) {
	server := serve(t, dns.Config{Clock: clocktesting.NewFakeClock(time.Now())})
	reply := mustAskBare(t, server, stranger)
	if reply.Rcode != miekg.RcodeRefused || len(reply.Answer)+len(reply.Ns)+len(reply.Extra) > 0 {
		t.Errorf("got %v", reply)
	}
	if _, err := ask(t, server, stranger, "tcp", question("web.shop.svc.cluster.local", miekg.TypeA)); err == nil {
		t.Error("a stranger was answered by TCP")
	}
	flood, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(stranger)}, udpAddr(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	packet, err := question("web.shop.svc.cluster.local", miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 120 {
		if _, err := flood.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	mustAsk(t, server, podOfA, "web.shop.svc.cluster.local", miekg.TypeA) // all that came before was dealt with
	replies := 0
	for buffer := make([]byte, 4096); ; replies++ {
		if err := flood.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := flood.Read(buffer)
		if err != nil {
			break
		}
		if n > len(packet) {
			t.Fatalf("%d bytes were answered with %d", len(packet), n)
		}
	}
	if replies == 0 || replies > 50 {
		t.Errorf("%d of 120 were answered", replies)
	}
}

// S6: a pod's containers call before its kubelet has told which address it has.
func TestAPodThatIsNotKnownYetIsAnsweredOnceItIs(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			h := cluster()
			server := serve(t, dns.Config{Source: h})
			asked := make(chan string, 1)
			go func() {
				reply, err := ask(t, server, stranger, network, question("web.shop.svc.cluster.local", miekg.TypeA))
				if err != nil {
					asked <- err.Error()
					return
				}
				asked <- said(reply)
			}()
			select {
			case got := <-asked:
				t.Fatalf("a stranger is told %q at once", got)
			case <-time.After(200 * time.Millisecond):
			}
			known := stranger
			h.late.Store(&known)
			if got := <-asked; got != "10.96.1.1" {
				t.Errorf("once known, the pod is told %q", got)
			}
		})
	}
}

// mustAskBare reads an answer that repeats no question.
func mustAskBare(t *testing.T, server, pod string) *miekg.Msg {
	t.Helper()
	query := question("web.shop.svc.cluster.local", miekg.TypeA)
	packet, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, exchange(t, server, pod, packet))
}

func parse(t *testing.T, packet []byte) *miekg.Msg {
	t.Helper()
	reply := new(miekg.Msg)
	if err := reply.Unpack(packet); err != nil {
		t.Fatal(err)
	}
	return reply
}

// exchange sends bytes by UDP and returns the bytes that come back.
func exchange(t *testing.T, server, pod string, packet []byte) []byte {
	t.Helper()
	conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(pod)}, udpAddr(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 65535)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return buffer[:n]
}

func udpAddr(t *testing.T, server string) *net.UDPAddr {
	t.Helper()
	addr, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// What is not answered as asked is turned away for what it is.
func TestWhatIsNoPlainQuestionIsTurnedAway(t *testing.T) {
	server := serve(t, dns.Config{})
	cases := map[string]struct {
		reason string
		change func(*miekg.Msg)
		want   int
	}{
		"ANY":  {"an answer of everything is for amplification (RFC 8482)", func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeANY }, miekg.RcodeNotImplemented},
		"AXFR": {"a zone is not for the taking", func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeAXFR }, miekg.RcodeRefused},
		"CHAOS": {"what runs here is nobody's business", func(m *miekg.Msg) {
			m.Question[0] = miekg.Question{Name: "version.bind.", Qtype: miekg.TypeTXT, Qclass: miekg.ClassCHAOS}
		}, miekg.RcodeRefused},
		"Update": {"nothing can be written", func(m *miekg.Msg) { m.Opcode = miekg.OpcodeUpdate }, miekg.RcodeNotImplemented},
		"Notify": {"nor told", func(m *miekg.Msg) { m.Opcode = miekg.OpcodeNotify }, miekg.RcodeNotImplemented},
		"Two":    {"no more than one at a time", func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) }, miekg.RcodeFormatError},
		"None":   {"", func(m *miekg.Msg) { m.Question = nil }, miekg.RcodeFormatError},
		"EDNS 1": {"there is no such version", func(m *miekg.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }, miekg.RcodeBadVers},
		"Answered": {"a question has no answers", func(m *miekg.Msg) {
			m.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: ".", Rrtype: miekg.TypeA, Class: 1}, A: net.IPv4zero}}
		}, miekg.RcodeFormatError},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			query := question("web.shop.svc.cluster.local", miekg.TypeA)
			tc.change(query)
			packet, err := query.Pack()
			if err != nil {
				t.Fatal(err)
			}
			reply := parse(t, exchange(t, server, podOfA, packet))
			if reply.Rcode != tc.want || len(reply.Answer) > 0 || reply.Id != query.Id {
				t.Errorf("%s: got %v, want %s", tc.reason, reply, miekg.RcodeToString[tc.want])
			}
		})
	}
}

// A space's queries are bounded; another space's are answered meanwhile.
func TestOneSpacesFloodIsNotAnothers(t *testing.T) {
	server := serve(t, dns.Config{Limits: dns.Limits{Queries: 10}, Clock: clocktesting.NewFakeClock(time.Now())})
	conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(podOfA)}, udpAddr(t, server))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packet, err := question("web.shop.svc.cluster.local", miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if got := said(mustAsk(t, server, podOfB, "kubernetes.default.svc.cluster.local", miekg.TypeA)); got != "10.96.0.2" {
			t.Errorf("another space is told %q", got)
		}
	}
	// By TCP, where nothing is lost, the flood learns what happens to it.
	reply, err := client(podOfA, "tcp").DialContext(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Close()
	if err := reply.WriteMsg(question("web.shop.svc.cluster.local", miekg.TypeA)); err != nil {
		t.Fatal(err)
	}
	if m, err := reply.ReadMsg(); err != nil || m.Rcode != miekg.RcodeRefused {
		t.Errorf("got %v, %v", m, err)
	}
}

// A space holds no more connections than its share, and those that it gives
// back it may have again.
func TestASpacesConnectionsAreBounded(t *testing.T) {
	server := serve(t, dns.Config{Limits: dns.Limits{Connections: 3}})
	open := func(pod string) *miekg.Conn {
		conn, err := client(pod, "tcp").DialContext(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	works := func(conn *miekg.Conn) error {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if err := conn.WriteMsg(question("kubernetes.default.svc.cluster.local", miekg.TypeA)); err != nil {
			return err
		}
		_, err := conn.ReadMsg()
		return err
	}
	var held []*miekg.Conn
	for range 3 {
		held = append(held, open(podOfA))
		if err := works(held[len(held)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if works(open(podOfA)) == nil {
		t.Error("a fourth connection was taken")
	}
	if err := works(open(podOfB)); err != nil {
		t.Errorf("another space's connection: %v", err)
	}
	_ = held[0].Close()
	for end := time.Now().Add(20 * time.Second); works(open(podOfA)) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a place that was given back is not given again")
		}
	}
}

// Whoever says that much comes and sends little, or nonsense, loses the
// connection; whatever is under way, a stop ends it and leaves nothing.
func TestSlowAndBrokenConnectionsEnd(t *testing.T) {
	ignored := goleak.IgnoreCurrent()
	t.Run("served", func(t *testing.T) {
		server := serve(t, dns.Config{})
		slow, err := client(podOfA, "tcp").DialContext(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		if _, err := slow.Conn.Write([]byte{0, 40, 1}); err != nil { // two bytes of length, one of 40
			t.Fatal(err)
		}
		for name, first := range map[string][]byte{
			"too long": {0xff, 0xff}, "empty": {0, 0}, "short": {0, 3, 1, 2, 3},
		} {
			conn, err := client(podOfA, "tcp").DialContext(t.Context(), server)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Conn.Write(first); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, err := io.ReadFull(conn.Conn, make([]byte, 1))
			if n > 0 || err == nil || errors.Is(err, errTimeout(err)) {
				t.Errorf("%s: the connection stays: %d bytes, %v", name, n, err)
			}
		}
		_ = slow.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := slow.Conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, errTimeout(err)) {
			t.Errorf("a slow connection stays: %v", err)
		}
		idle, err := client(podOfA, "tcp").DialContext(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Close() }) // after the server's
	})
	if err := goleak.Find(ignored); err != nil {
		t.Error(err)
	}
}

// errTimeout is err if it is one of time, for that the server left a connection
// open.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errors.New("another")
}

// Many questions on one connection, sent at once, are all answered.
func TestAConnectionServesManyQuestions(t *testing.T) {
	conn, err := client(podOfA, "tcp").DialContext(t.Context(), serve(t, dns.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var all []byte
	for i := range 50 {
		query := question("web.shop.svc.cluster.local", miekg.TypeA)
		query.Id = uint16(i)
		packet, err := query.Pack()
		if err != nil {
			t.Fatal(err)
		}
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(packet))), packet...)
	}
	if _, err := conn.Conn.Write(all); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	for i := range 50 {
		reply, err := conn.ReadMsg()
		if err != nil || int(reply.Id) != i || said(reply) != "10.96.1.1" {
			t.Fatalf("answer %d is %v: %v", i, reply, err)
		}
	}
}
