// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/berth-dev/berth/dns"
)

// S6: the records of the Kubernetes DNS specification, by UDP and by TCP.
func TestASpacesPodsGetItsNames(t *testing.T) {
	server := serve(t, dns.Config{HostDomains: []string{"corp.example"}})
	cases := map[string]struct {
		reason, name string
		qtype        uint16
		want         string
		rcode        int
	}{
		"ClusterIP":      {"a service has its cluster IP", "web.shop.svc.cluster.local", miekg.TypeA, "10.96.1.1", 0},
		"ClusterIPv6":    {"of either family", "web.shop.svc.cluster.local", miekg.TypeAAAA, "fd00:96::1", 0},
		"NoIPv6":         {"a name without a record of the type is there all the same", "kubernetes.default.svc.cluster.local", miekg.TypeAAAA, "", 0},
		"AnyCase":        {"names are the same in any case", "WEB.Shop.SVC.Cluster.LOCAL", miekg.TypeA, "10.96.1.1", 0},
		"API":            {"the space's own API, not the host's nor another's", "kubernetes.default.svc.cluster.local", miekg.TypeA, "10.96.0.1", 0},
		"Headless":       {"all endpoints that are ready", "db.shop.svc.cluster.local", miekg.TypeA, "10.244.0.5 | 10.244.1.5 | 10.244.3.5 | 10.244.4.5", 0},
		"NotReady":       {"a service may show those that are not", "early.shop.svc.cluster.local", miekg.TypeA, "10.244.2.5", 0},
		"NoEndpoints":    {"a service without endpoints is there", "nobody.shop.svc.cluster.local", miekg.TypeA, "", 0},
		"StatefulSet":    {"a pod by its host name in its subdomain", "db-1.db.shop.svc.cluster.local", miekg.TypeA, "10.244.1.5", 0},
		"GivenHostname":  {"or by the name that its endpoint gives", "named.db.shop.svc.cluster.local", miekg.TypeA, "10.244.4.5", 0},
		"DashedEndpoint": {"one without is called by its address", "10-244-3-5.db.shop.svc.cluster.local", miekg.TypeA, "10.244.3.5", 0},
		"NoSuchEndpoint": {"", "db-7.db.shop.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"UnreadyByName":  {"", "10-244-2-5.db.shop.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"SRV": {
			"a port by its name and protocol", "_http._tcp.web.shop.svc.cluster.local", miekg.TypeSRV, "0 100 80 web.shop.svc.cluster.local.", 0,
		},
		"SRVOfOther":    {"not by another protocol", "_http._udp.web.shop.svc.cluster.local", miekg.TypeSRV, "", miekg.RcodeNameError},
		"SRVName":       {"the name has no address of its own", "_http._tcp.web.shop.svc.cluster.local", miekg.TypeA, "", 0},
		"SRVProtocol":   {"there are names below", "_tcp.web.shop.svc.cluster.local", miekg.TypeSRV, "", 0},
		"SRVNoProtocol": {"", "_sctp.web.shop.svc.cluster.local", miekg.TypeSRV, "", miekg.RcodeNameError},
		"SRVHeadless": {
			"each endpoint by its name, with the pods' own port", "_http._tcp.db.shop.svc.cluster.local", miekg.TypeSRV,
			"0 100 8080 10-244-3-5.db.shop.svc.cluster.local. | 0 100 8080 db-0.db.shop.svc.cluster.local. | " +
				"0 100 8080 db-1.db.shop.svc.cluster.local. | 0 100 8080 named.db.shop.svc.cluster.local.", 0,
		},
		"Pod":          {"a pod by its address", "10-244-0-5.shop.pod.cluster.local", miekg.TypeA, "10.244.0.5", 0},
		"PodElsewhere": {"in its own namespace only", "10-244-0-5.default.pod.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"PodOfNobody":  {"no name stands for an address of one's choice", "192-0-2-1.shop.pod.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"ForeignPod":   {"nor for that of another space's pod", "127-0-0-20.default.pod.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"External":     {"an alias is looked up", "inside.shop.svc.cluster.local", miekg.TypeA, "10.96.1.1 | web.shop.svc.cluster.local.", 0},
		"ExternalAs":   {"or given as it is", "outside.shop.svc.cluster.local", miekg.TypeCNAME, "www.example.com.", 0},
		"ExternalSub":  {"nothing is below", "x.outside.shop.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"PTR":          {"a cluster IP leads back", "1.1.96.10.in-addr.arpa", miekg.TypePTR, "web.shop.svc.cluster.local.", 0},
		"PTRv6": {
			"of either family", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa", miekg.TypePTR, "web.shop.svc.cluster.local.", 0,
		},
		"PTREndpoint":  {"so does an endpoint of a headless service", "5.0.244.10.in-addr.arpa", miekg.TypePTR, "db-0.db.shop.svc.cluster.local.", 0},
		"PTRNoPTR":     {"", "1.1.96.10.in-addr.arpa", miekg.TypeA, "", 0},
		"Version":      {"", "dns-version.cluster.local", miekg.TypeTXT, "\"1.1.0\"", 0},
		"Apex":         {"", "cluster.local", miekg.TypeA, "", 0},
		"Services":     {"there are names below", "svc.cluster.local", miekg.TypeA, "", 0},
		"Namespace":    {"there are names below", "shop.svc.cluster.local", miekg.TypeA, "", 0},
		"NoNamespace":  {"", "elsewhere.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"NoService":    {"", "nothing.shop.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"TooDeep":      {"", "a.b.c.web.shop.svc.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"OtherTree":    {"", "web.shop.what.cluster.local", miekg.TypeA, "", miekg.RcodeNameError},
		"Nonsense":     {"an endless name of nothing", `\000\..\255.svc.cluster.local`, miekg.TypeA, "", miekg.RcodeNameError},
		"BrokenTarget": {"a target that is no name", "broken.shop.svc.cluster.local", miekg.TypeA, "", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, network := range []string{"udp", "tcp"} {
				reply, err := ask(t, server, podOfA, network, question(tc.name, tc.qtype))
				if err != nil {
					t.Fatal(err)
				}
				if reply.Rcode != tc.rcode || said(reply) != tc.want {
					t.Errorf("%s: by %s %s, %q; want %s, %q", tc.reason, network,
						miekg.RcodeToString[reply.Rcode], said(reply), miekg.RcodeToString[tc.rcode], tc.want)
				}
				if !reply.Authoritative || !reply.RecursionAvailable {
					t.Errorf("authoritative is %v, recursion available %v", reply.Authoritative, reply.RecursionAvailable)
				}
				if len(reply.Answer) > 0 {
					continue
				}
				if soa, ok := sole(reply.Ns).(*miekg.SOA); !ok || soa.Minttl > 30 {
					t.Errorf("a negative answer has authority %v, want a SOA with a short life", reply.Ns)
				}
			}
		})
	}
}

func sole(records []miekg.RR) miekg.RR {
	if len(records) != 1 {
		return nil
	}
	return records[0]
}

// S6: what an SRV record leads to comes along.
func TestAnSRVRecordBringsItsAddresses(t *testing.T) {
	reply := mustAsk(t, serve(t, dns.Config{}), podOfA, "_http._tcp.web.shop.svc.cluster.local", miekg.TypeSRV)
	if len(reply.Extra) != 2 || reply.Extra[0].(*miekg.A).A.String() != "10.96.1.1" {
		t.Errorf("beside the record come %v", reply.Extra)
	}
}

// S6, Z1: to a space's pods nothing of another space, or of the host, is there.
func TestSpacesDoNotSeeEachOther(t *testing.T) {
	server := serve(t, dns.Config{HostDomains: []string{"corp.example"}})
	for name, qtype := range map[string]uint16{
		"secret.shop.svc.cluster.local":                miekg.TypeA,
		"b--shop--secret.berth-b.svc.cluster.local":    miekg.TypeA,
		"a--shop--web.berth-a.svc.cluster.local":       miekg.TypeA,
		"kube-dns.kube-system.svc.cluster.local":       miekg.TypeA,
		"kube-dns.kube-system.svc.corp.example":        miekg.TypeA,
		"_http._tcp.secret.shop.svc.cluster.local":     miekg.TypeSRV,
		"2.2.96.10.in-addr.arpa":                       miekg.TypePTR, // b's service
		"20.0.0.127.in-addr.arpa":                      miekg.TypePTR, // b's pod
		"10.0.96.10.in-addr.arpa":                      miekg.TypePTR, // the host's
		"theirs.shop.svc.cluster.local":                miekg.TypeA,   // a's alias of a name of b's
		"hosts.shop.svc.cluster.local":                 miekg.TypeA,   // a's alias of a name of the host's
		"127-0-0-20.default.pod.cluster.local":         miekg.TypeA,
		"kind-control-plane":                           miekg.TypeA,
		"metadata.google.internal":                     miekg.TypeA,
		"printer.local":                                miekg.TypeA,
		"96.10.in-addr.arpa":                           miekg.TypePTR,
		"zz.in-addr.arpa":                              miekg.TypePTR,
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa": miekg.TypePTR,
	} {
		reply := mustAsk(t, server, podOfA, name, qtype)
		if reply.Rcode != miekg.RcodeNameError {
			t.Errorf("%s: %s, %q", name, miekg.RcodeToString[reply.Rcode], said(reply))
		}
	}
	if got := said(mustAsk(t, server, podOfB, "secret.shop.svc.cluster.local", miekg.TypeA)); got != "10.96.2.2" {
		t.Errorf("to its own space the service is %q", got)
	}
	if got := said(mustAsk(t, server, podOfB, "kubernetes.default.svc.cluster.local", miekg.TypeA)); got != "10.96.0.2" {
		t.Errorf("b's API is at %q", got)
	}
}

// An alias of itself, or of another that leads back, ends.
func TestACircleOfAliasesEnds(t *testing.T) {
	reply := mustAsk(t, serve(t, dns.Config{}), podOfA, "circle.shop.svc.cluster.local", miekg.TypeA)
	if reply.Rcode != miekg.RcodeServerFailure {
		t.Errorf("got %s", miekg.RcodeToString[reply.Rcode])
	}
}

// S6: what is too large for the client comes by TCP.
func TestAnswersAreCutToWhatTheClientTakes(t *testing.T) {
	server := serve(t, dns.Config{})
	for size, want := range map[uint16]int{0: 512, 100: 512, 600: 600, 65535: 1232} {
		query := question("many.shop.svc.cluster.local", miekg.TypeA)
		if size > 0 {
			query.SetEdns0(size, false)
		}
		reply, err := ask(t, server, podOfA, "udp", query)
		if err != nil {
			t.Fatal(err)
		}
		reply.Compress = true // as it came
		packed, err := reply.Pack()
		if err != nil || len(packed) > want || !reply.Truncated || (reply.IsEdns0() != nil) != (size > 0) {
			t.Errorf("to a client of %d bytes: %d bytes, truncated %v, EDNS %v, %v", size, len(packed), reply.Truncated, reply.IsEdns0(), err)
		}
	}
	reply, err := ask(t, server, podOfA, "tcp", question("many.shop.svc.cluster.local", miekg.TypeA))
	if err != nil || len(reply.Answer) != 200 || reply.Truncated {
		t.Errorf("by TCP there are %d records, truncated %v: %v", len(reply.Answer), reply.Truncated, err)
	}
}
