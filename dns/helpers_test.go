// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/internal/testnet"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// hostObjects are objects of a host, made from a space's as its syncer makes
// them.
type hostObjects struct {
	late     atomic.Pointer[string] // an address that is a's from some moment on
	pods     []*corev1.Pod
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
}

func (h *hostObjects) service(space, namespace, name string, change func(*corev1.ServiceSpec)) {
	v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(space + namespace + name)}}
	change(&v.Spec)
	h.services = append(h.services, translate.Space{Name: space}.Service(v))
}

func (h *hostObjects) pod(space, namespace, name, ip string, change ...func(*corev1.Pod)) {
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(space + name)}}
	for _, f := range change {
		f(v)
	}
	pod := pod.ToHost(translate.Space{Name: space}, v, pod.Surroundings{})
	pod.Status.PodIP = ip
	h.pods = append(h.pods, pod)
}

// endpoints are what the host's own controller makes for a service.
func (h *hostObjects) endpoints(space, namespace, service string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) {
	of := translate.Space{Name: space}
	name := of.HostName(namespace, service, translate.LimitLabel)
	h.slices = append(h.slices, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.HostNamespace(), Name: name + "-x", Labels: map[string]string{translate.LabelSpace: space, discoveryv1.LabelServiceName: name},
		},
		Ports: ports, Endpoints: endpoints,
	})
}

func (h *hostObjects) SpaceAt(addr netip.Addr) (string, bool) {
	if late := h.late.Load(); late != nil && *late == addr.String() {
		return "a", true
	}
	for _, pod := range h.pods {
		if pod.Status.PodIP == addr.String() {
			return pod.Labels[translate.LabelSpace], true
		}
	}
	return "", false
}

func (h *hostObjects) PodAt(space string, addr netip.Addr) *corev1.Pod {
	return first(h.pods, func(p *corev1.Pod) bool {
		return p.Status.PodIP == addr.String() && p.Labels[translate.LabelSpace] == space
	})
}

func (h *hostObjects) Service(space, namespace, name string) *corev1.Service {
	return first(h.services, func(s *corev1.Service) bool {
		id, _ := translate.IdentityOf(s)
		return id.Space == space && id.Namespace == namespace && id.Name == name
	})
}

func (h *hostObjects) ServiceAt(space string, addr netip.Addr) *corev1.Service {
	return first(h.services, func(s *corev1.Service) bool {
		return s.Labels[translate.LabelSpace] == space && (s.Spec.ClusterIP == addr.String() || slices.Contains(s.Spec.ClusterIPs, addr.String()))
	})
}

func (h *hostObjects) Slices(service *corev1.Service) (found []*discoveryv1.EndpointSlice) {
	for _, s := range h.slices {
		if s.Namespace == service.Namespace && s.Labels[discoveryv1.LabelServiceName] == service.Name {
			found = append(found, s)
		}
	}
	return found
}

func (h *hostObjects) SlicesAt(space string, addr netip.Addr) (found []*discoveryv1.EndpointSlice) {
	for _, s := range h.slices {
		if s.Labels[translate.LabelSpace] == space && slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
			return slices.Contains(e.Addresses, addr.String())
		}) {
			found = append(found, s)
		}
	}
	return found
}

func (h *hostObjects) ServiceOf(slice *discoveryv1.EndpointSlice) *corev1.Service {
	return first(h.services, func(s *corev1.Service) bool {
		return s.Namespace == slice.Namespace && s.Name == slice.Labels[discoveryv1.LabelServiceName]
	})
}

func (h *hostObjects) HasNamespace(space, namespace string) bool {
	return slices.ContainsFunc(h.services, func(s *corev1.Service) bool {
		id, _ := translate.IdentityOf(s)
		return id.Space == space && id.Namespace == namespace
	})
}

func first[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// Addresses that pods of these tests call from.
const (
	podOfA   = "127.0.0.10"
	podOfB   = "127.0.0.20"
	stranger = "127.0.0.99"
)

// cluster are two spaces with much the same names.
func cluster() *hostObjects {
	h := &hostObjects{}
	h.pod("a", "default", "caller", podOfA)
	h.pod("b", "default", "caller", podOfB)
	http := []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Port: 9, Protocol: corev1.ProtocolTCP},
	}
	for _, space := range []string{"a", "b"} {
		h.service(space, "default", "kubernetes", func(s *corev1.ServiceSpec) {
			s.ClusterIP = map[string]string{"a": "10.96.0.1", "b": "10.96.0.2"}[space]
			s.Ports = []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443}}
		})
	}
	h.service("a", "shop", "web", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs, s.Ports = "10.96.1.1", []string{"10.96.1.1", "fd00:96::1"}, http
	})
	h.service("b", "shop", "secret", func(s *corev1.ServiceSpec) { s.ClusterIP, s.Ports = "10.96.2.2", http })

	ready, not := discoveryv1.EndpointConditions{Ready: ptr.To(true)}, discoveryv1.EndpointConditions{Ready: ptr.To(false)}
	ports := []discoveryv1.EndpointPort{
		{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))},
	}
	headless := func(s *corev1.ServiceSpec) { s.ClusterIP, s.Ports = corev1.ClusterIPNone, http[:1] }
	h.service("a", "shop", "db", headless)
	for i, ip := range []string{"10.244.0.5", "10.244.1.5"} {
		h.pod("a", "shop", "db-"+string(rune('0'+i)), ip, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = p.Name, "db" })
	}
	h.endpoints("a", "shop", "db", ports,
		discoveryv1.Endpoint{Addresses: []string{"10.244.0.5"}, Conditions: ready},
		discoveryv1.Endpoint{Addresses: []string{"10.244.1.5"}, Conditions: ready},
		discoveryv1.Endpoint{Addresses: []string{"10.244.2.5"}, Conditions: not},
		discoveryv1.Endpoint{Addresses: []string{"10.244.3.5"}, Conditions: ready},
		discoveryv1.Endpoint{Addresses: []string{"10.244.4.5"}, Conditions: ready, Hostname: ptr.To("Named")})
	h.service("a", "shop", "early", func(s *corev1.ServiceSpec) { headless(s); s.PublishNotReadyAddresses = true })
	h.endpoints("a", "shop", "early", ports, discoveryv1.Endpoint{Addresses: []string{"10.244.2.5"}, Conditions: not})
	h.service("a", "shop", "nobody", headless)
	h.service("a", "shop", "many", headless)
	var many []discoveryv1.Endpoint
	for i := range 200 {
		many = append(many, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 245, 0, byte(i)}).String()}})
	}
	h.endpoints("a", "shop", "many", ports, many...)

	external := func(target string) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, target }
	}
	h.service("a", "shop", "inside", external("web.shop.svc.cluster.local"))
	h.service("a", "shop", "outside", external("www.example.com"))
	h.service("a", "shop", "circle", external("circle.shop.svc.cluster.local"))
	h.service("a", "shop", "theirs", external("secret.shop.svc.cluster.local"))
	h.service("a", "shop", "hosts", external("kube-dns.kube-system.svc.corp.example"))
	h.service("a", "shop", "broken", external("..bad.."))
	return h
}

// serve runs a resolver and returns where.
func serve(t *testing.T, c dns.Config) (address string) {
	t.Helper()
	udp, tcp := testnet.Listen(t)
	if c.Source == nil {
		c.Source = cluster()
	}
	server, err := dns.Serve(udp, tcp, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return udp.LocalAddr().String()
}

// ask asks as the pod that has an address.
func ask(t *testing.T, server, pod, network string, query *miekg.Msg) (*miekg.Msg, error) {
	t.Helper()
	c := client(pod, network)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	reply, _, err := c.ExchangeContext(ctx, query, server)
	return reply, err
}

func client(pod, network string) *miekg.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(pod)}}
	if network == "udp" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(pod)}
	}
	return &miekg.Client{Net: network, Dialer: dialer, Timeout: 20 * time.Second}
}

func question(name string, qtype uint16) *miekg.Msg {
	return new(miekg.Msg).SetQuestion(miekg.Fqdn(name), qtype)
}

// mustAsk asks by UDP.
func mustAsk(t *testing.T, server, pod, name string, qtype uint16) *miekg.Msg {
	t.Helper()
	reply, err := ask(t, server, pod, "udp", question(name, qtype))
	if err != nil {
		t.Fatalf("ask for %s: %v", name, err)
	}
	return reply
}

// said is an answer without names and times: what the records hold, sorted.
func said(m *miekg.Msg) string {
	var all []string
	for _, rr := range m.Answer {
		all = append(all, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	slices.Sort(all)
	return strings.Join(all, " | ")
}
