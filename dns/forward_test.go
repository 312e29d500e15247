// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/internal/testnet"
)

// upstream is the world outside: it answers each name by what records says, and
// remembers what it was asked.
type upstream struct {
	address string
	records map[string][]string // by name
	byType  bool                // answers with records of the type that is asked for
	hold    chan struct{}       // if set, answers wait until it is closed
	spoil   func(*miekg.Msg)    // if set, changes each answer

	mu    sync.Mutex
	asked []string
}

// newUpstream starts one. What sets it up comes before: it answers as soon as it is there.
func newUpstream(t *testing.T, records map[string][]string, setUp ...func(*upstream)) *upstream {
	t.Helper()
	udp, tcp := testnet.Listen(t)
	u := &upstream{address: udp.LocalAddr().String(), records: records}
	for _, set := range setUp {
		set(u)
	}
	for _, server := range []*miekg.Server{{PacketConn: udp, Handler: u, UDPSize: 4096}, {Listener: tcp, Handler: u}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		var done sync.WaitGroup
		done.Go(func() { _ = server.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = server.Shutdown(); done.Wait() })
	}
	return u
}

// ServeDNS implements [miekg.Handler].
func (u *upstream) ServeDNS(w miekg.ResponseWriter, query *miekg.Msg) {
	u.mu.Lock()
	u.asked = append(u.asked, query.Question[0].Name)
	u.mu.Unlock()
	if u.hold != nil {
		<-u.hold
	}
	reply := new(miekg.Msg).SetReply(query)
	records, ok := u.records[query.Question[0].Name]
	if !ok {
		reply.Rcode = miekg.RcodeNameError
	}
	for _, text := range records {
		rr, err := miekg.NewRR(text)
		if err != nil {
			panic(err)
		}
		if !u.byType || rr.Header().Rrtype == query.Question[0].Qtype {
			reply.Answer = append(reply.Answer, rr)
		}
	}
	if soa, err := miekg.NewRR("example.com. 60 IN SOA ns.example.com. me.example.com. 1 2 3 4 60"); err == nil && len(reply.Answer) == 0 {
		reply.Ns = append(reply.Ns, soa)
	}
	if w.LocalAddr().Network() == "udp" {
		reply.Truncate(1232)
	}
	if u.spoil != nil {
		u.spoil(reply)
	}
	_ = w.WriteMsg(reply)
}

func (u *upstream) questions() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.asked...)
}

// S6: names that are not the cluster's are asked for upstream, once for as long
// as the answer holds, and for each space by itself.
func TestOtherNamesAreAskedForUpstreamAndKept(t *testing.T) {
	outside := newUpstream(t, map[string][]string{
		"www.example.com.":          {"www.example.com. 60 IN A 203.0.113.7"},
		"7.113.0.203.in-addr.arpa.": {"7.113.0.203.in-addr.arpa. 60 IN PTR www.example.com."},
		"alias.example.com.":        {"alias.example.com. 60 IN CNAME www.example.com.", "www.example.com. 30 IN A 203.0.113.7"},
	})
	clock := clocktesting.NewFakeClock(time.Now())
	server := serve(t, dns.Config{Upstreams: []string{outside.address}, Clock: clock})
	expect := func(t *testing.T, pod, name string, qtype uint16, want string, ttl uint32, asked int) {
		t.Helper()
		reply := mustAsk(t, server, pod, name, qtype)
		if said(reply) != want || len(reply.Answer) > 0 && reply.Answer[0].Header().Ttl != ttl || reply.Authoritative {
			t.Errorf("%s is %v, authoritative %v; want %q for %d", name, reply.Answer, reply.Authoritative, want, ttl)
		}
		if got := len(outside.questions()); got != asked {
			t.Errorf("after %s upstream had %d questions, want %d", name, got, asked)
		}
	}
	expect(t, podOfA, "www.example.com", miekg.TypeA, "203.0.113.7", 60, 1)
	clock.Step(20 * time.Second)
	expect(t, podOfA, "WWW.example.com", miekg.TypeA, "203.0.113.7", 40, 1)
	expect(t, podOfB, "www.example.com", miekg.TypeA, "203.0.113.7", 60, 2) // not by how fast can one tell what others ask
	clock.Step(41 * time.Second)
	expect(t, podOfA, "www.example.com", miekg.TypeA, "203.0.113.7", 60, 3)
	expect(t, podOfA, "alias.example.com", miekg.TypeA, "203.0.113.7 | www.example.com.", 60, 4)
	expect(t, podOfA, "7.113.0.203.in-addr.arpa", miekg.TypePTR, "www.example.com.", 60, 5)
	expect(t, podOfA, "outside.shop.svc.cluster.local", miekg.TypeA, "203.0.113.7 | www.example.com.", 5, 5) // chased, from what is kept
}

// N1, Z1: upstream may be the host's own cluster DNS. Nothing of the host's is
// asked there for a tenant, nor shown if it turns up in an answer: neither where
// it is, nor that it is.
func TestNothingOfTheHostsIsAskedForOrShown(t *testing.T) {
	outside := newUpstream(t, map[string][]string{
		"secret.shop.svc.cluster.local.": {"secret.shop.svc.cluster.local. 60 IN A 203.0.113.1"},
		"api.corp.example.":              {"api.corp.example. 60 IN A 203.0.113.1"},
		"kind-control-plane.":            {"kind-control-plane. 60 IN A 203.0.113.1"},
		"db.corp.internal.":              {"db.corp.internal. 60 IN A 203.0.113.1"},
		"1.0.244.10.in-addr.arpa.":       {"1.0.244.10.in-addr.arpa. 60 IN PTR pod.elsewhere.com."},
		"9.100.51.198.in-addr.arpa.":     {"9.100.51.198.in-addr.arpa. 60 IN PTR service.elsewhere.com."},

		"private.example.com.":      {"private.example.com. 60 IN A 10.0.0.1"},
		"metadata.example.com.":     {"metadata.example.com. 60 IN A 203.0.113.1", "metadata.example.com. 60 IN A 169.254.169.254"},
		"loopback.example.com.":     {"loopback.example.com. 60 IN A 127.0.0.1"},
		"mapped.example.com.":       {"mapped.example.com. 60 IN AAAA ::ffff:10.0.0.1"},
		"nat64.example.com.":        {"nat64.example.com. 60 IN AAAA 64:ff9b::a00:1"},
		"6to4.example.com.":         {"6to4.example.com. 60 IN AAAA 2002:a00:1::1"},
		"local64.example.com.":      {"local64.example.com. 60 IN AAAA 64:ff9b:1::a00:1"},
		"compatible.example.com.":   {"compatible.example.com. 60 IN AAAA ::10.0.0.1"},
		"teredo.example.com.":       {"teredo.example.com. 60 IN AAAA 2001:0:a00:1::1"},
		"ula.example.com.":          {"ula.example.com. 60 IN AAAA fd00::1"},
		"range.example.com.":        {"range.example.com. 60 IN A 198.51.100.9"},
		"cname.example.com.":        {"cname.example.com. 60 IN CNAME kube-dns.kube-system.svc.corp.example."},
		"mine.example.com.":         {"mine.example.com. 60 IN CNAME web.shop.svc.cluster.local.", "web.shop.svc.cluster.local. 60 IN A 203.0.113.66"},
		"hint.example.com.":         {`hint.example.com. 60 IN HTTPS 1 . ipv4hint="10.0.0.1"`},
		"8.113.0.203.in-addr.arpa.": {"8.113.0.203.in-addr.arpa. 60 IN PTR node-1.corp.example."},
	})
	server := serve(t, dns.Config{
		Upstreams: []string{outside.address}, HostDomains: []string{"corp.example"}, HostRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	})
	for _, hidden := range []struct {
		name  string
		qtype uint16
	}{
		{"secret.shop.svc.cluster.local", miekg.TypeA},
		{"API.Corp.Example", miekg.TypeA},
		{"corp.example", miekg.TypeNS},
		{"kind-control-plane", miekg.TypeA},
		{"db.corp.internal", miekg.TypeA},
		{"1.0.244.10.in-addr.arpa", miekg.TypePTR},
		{"9.100.51.198.in-addr.arpa", miekg.TypePTR},
		{"10.in-addr.arpa", miekg.TypeNS},
	} {
		if reply := mustAsk(t, server, podOfA, hidden.name, hidden.qtype); reply.Rcode != miekg.RcodeNameError {
			t.Errorf("%s: %s %q", hidden.name, miekg.RcodeToString[reply.Rcode], said(reply))
		}
	}
	if asked := outside.questions(); len(asked) > 0 {
		t.Errorf("upstream was asked for %v", asked)
	}
	for _, unseen := range []struct {
		name  string
		qtype uint16
	}{
		{"private.example.com", miekg.TypeA}, {"metadata.example.com", miekg.TypeA}, {"loopback.example.com", miekg.TypeA},
		{"mapped.example.com", miekg.TypeAAAA}, {"nat64.example.com", miekg.TypeAAAA}, {"ula.example.com", miekg.TypeAAAA},
		{"6to4.example.com", miekg.TypeAAAA}, {"local64.example.com", miekg.TypeAAAA}, {"compatible.example.com", miekg.TypeAAAA},
		{"teredo.example.com", miekg.TypeAAAA}, {"range.example.com", miekg.TypeA}, {"cname.example.com", miekg.TypeA}, {"mine.example.com", miekg.TypeA},
		{"hint.example.com", miekg.TypeHTTPS}, {"8.113.0.203.in-addr.arpa", miekg.TypePTR},
	} {
		if reply := mustAsk(t, server, podOfA, unseen.name, unseen.qtype); reply.Rcode != miekg.RcodeNameError || len(reply.Answer) > 0 {
			t.Errorf("%s: %s %q", unseen.name, miekg.RcodeToString[reply.Rcode], said(reply))
		}
	}
}

// N1, Z1: a name of the host's cannot be told from one that is not there by
// asking for anything else of it.
func TestAHiddenNameLooksLikeNone(t *testing.T) {
	outside := newUpstream(t, map[string][]string{
		"private.example.com.": {"private.example.com. 60 IN A 10.0.0.1", `private.example.com. 60 IN TXT "there"`},
		"six.example.com.":     {"six.example.com. 60 IN AAAA fd00::1"},
		"public.example.com.":  {"public.example.com. 60 IN A 203.0.113.7", `public.example.com. 60 IN TXT "there"`},
		"text.example.com.":    {`text.example.com. 60 IN TXT "there"`},
	}, func(u *upstream) { u.byType = true })
	server := serve(t, dns.Config{Upstreams: []string{outside.address}})
	none := func(name string, qtype uint16) string {
		reply := mustAsk(t, server, podOfA, name, qtype)
		reply.Id, reply.Question = 0, nil
		for _, rr := range reply.Ns {
			rr.Header().Ttl = 0 // it may have aged
		}
		return reply.String()
	}
	for _, qtype := range []uint16{miekg.TypeAAAA, miekg.TypeA, miekg.TypeMX, miekg.TypeTXT, miekg.TypeHTTPS} {
		want := none("nothing.example.com", qtype)
		for _, name := range []string{"private.example.com", "six.example.com"} {
			if got := none(name, qtype); got != want {
				t.Errorf("%s of %s:\n%s\nof a name that is not there:\n%s", miekg.TypeToString[qtype], name, got, want)
			}
		}
	}
	for name, qtype := range map[string]uint16{"public.example.com": miekg.TypeMX, "text.example.com": miekg.TypeA} {
		if reply := mustAsk(t, server, podOfA, name, qtype); reply.Rcode != miekg.RcodeSuccess || len(reply.Answer) > 0 {
			t.Errorf("%s is not empty, but %v", name, reply)
		}
		if got := said(mustAsk(t, server, podOfA, name, miekg.TypeTXT)); got != `"there"` {
			t.Errorf("the text of %s is %q", name, got)
		}
	}
}

// An answer to another question, or under another number, is none.
func TestWhatUpstreamWasNotAskedIsNotTaken(t *testing.T) {
	for name, spoil := range map[string]func(*miekg.Msg){
		"question": func(m *miekg.Msg) { m.Question[0].Name = "other.example.com." },
		"type":     func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeMX },
		"refusal":  func(m *miekg.Msg) { m.Rcode = miekg.RcodeRefused },
		"query":    func(m *miekg.Msg) { m.Response = false },
	} {
		t.Run(name, func(t *testing.T) {
			outside := newUpstream(t, map[string][]string{"www.example.com.": {"www.example.com. 60 IN A 203.0.113.7"}}, func(u *upstream) { u.spoil = spoil })
			reply := mustAsk(t, serve(t, dns.Config{Upstreams: []string{outside.address}}), podOfA, "www.example.com", miekg.TypeA)
			if reply.Rcode != miekg.RcodeServerFailure || len(reply.Answer) > 0 {
				t.Errorf("got %s %q", miekg.RcodeToString[reply.Rcode], said(reply))
			}
		})
	}
}

// The next upstream is asked when one fails; a long answer comes by TCP.
func TestUpstreamsAreAskedInTurnAndByTCP(t *testing.T) {
	broken := newUpstream(t, nil, func(u *upstream) { u.spoil = func(m *miekg.Msg) { m.Rcode = miekg.RcodeServerFailure } })
	var long []string
	for i := range 100 {
		long = append(long, "long.example.com. 60 IN A "+netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}).String())
	}
	works := newUpstream(t, map[string][]string{"long.example.com.": long})
	server := serve(t, dns.Config{Upstreams: []string{broken.address, works.address}})
	reply, err := ask(t, server, podOfA, "tcp", question("long.example.com", miekg.TypeA))
	if err != nil || len(reply.Answer) != 100 {
		t.Errorf("got %d records: %v", len(reply.Answer), err)
	}
}

// One space's questions upstream are bounded, at once and a second; another
// space's are answered meanwhile.
func TestASpacesQuestionsUpstreamAreBounded(t *testing.T) {
	outside := newUpstream(t, map[string][]string{"www.example.com.": {"www.example.com. 60 IN A 203.0.113.7"}}, func(u *upstream) { u.hold = make(chan struct{}) })
	release := sync.OnceFunc(func() { close(outside.hold) })
	t.Cleanup(release)
	server := serve(t, dns.Config{
		Upstreams: []string{outside.address}, Limits: dns.Limits{Forwarding: 3, Forwards: 4}, Clock: clocktesting.NewFakeClock(time.Now()),
	})
	results := make(chan int, 20)
	var refused atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			reply, err := ask(t, server, podOfA, "udp", question(string(rune('a'+i))+".example.com", miekg.TypeA))
			if err != nil {
				t.Error(err)
				return
			}
			if reply.Rcode == miekg.RcodeServerFailure || reply.Rcode == miekg.RcodeRefused {
				refused.Add(1)
			}
			results <- reply.Rcode
		})
	}
	for range 17 { // all but those that wait
		<-results
	}
	for end := time.Now().Add(20 * time.Second); len(outside.questions()) < 3 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if got := len(outside.questions()); got != 3 {
		t.Errorf("upstream was asked %d questions at once, want 3", got)
	}
	if got := refused.Load(); got != 17 {
		t.Errorf("%d were turned away, want 17", got)
	}
	if got := said(mustAsk(t, server, podOfA, "web.shop.svc.cluster.local", miekg.TypeA)); got != "10.96.1.1" {
		t.Errorf("meanwhile the space's own name is %q", got)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := said(mustAsk(t, server, podOfB, "www.example.com", miekg.TypeA)); got != "203.0.113.7" {
			t.Errorf("another space is told %q", got)
		}
	}()
	release()
	<-done
	wg.Wait()
	before := len(outside.questions())
	for i := range 20 {
		mustAsk(t, server, podOfA, string(rune('a'+i))+".more.example.com", miekg.TypeA)
	}
	if got := len(outside.questions()) - before; got > 8 {
		t.Errorf("%d more were asked in no time, of 4 a second", got)
	}
}
