// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/internal/testnet"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// inside is a shard whose spaces' pods reach their DNS and API. Addresses of this
// machine stand for those of pods.
type inside struct {
	*sleepy
	ca       *pki.CA
	dns, api string
}

func startInside(t *testing.T) *inside {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "inside")
	if err != nil {
		t.Fatal(err)
	}
	in := &inside{ca: ca}
	in.sleepy = startSleepy(t, func(c *shard.Config) {
		c.ServingCA = ca.PEM
		c.Pods = translate.PodsEndpoint{Address: netip.MustParseAddr("192.0.2.10"), APIPort: 7444, DNSPort: 7453}
	})
	udp, tcp := testnet.Listen(t)
	resolver, err := dns.Serve(udp, tcp, dns.Config{Source: in.Host(), Logger: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resolver.Stop)
	port, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificates := &gateway.PodCertificates{CA: ca, Domain: dns.DefaultDomain, Address: in.address}
	server := gateway.ServePods(port, gateway.Pods{
		SpaceAt: in.Host().SpaceAt, Certificate: certificates.Get, Router: &gateway.Router{Lookup: in.Handler},
	}, klog.Background())
	t.Cleanup(func() { server.Stop(context.Background()) })
	in.dns, in.api = udp.LocalAddr().String(), port.Addr().String()
	return in
}

// address is the cluster IP of a space's API.
func (in *inside) address(space string) string {
	if service := in.Host().Service(space, "default", "kubernetes"); service != nil {
		return service.Spec.ClusterIP
	}
	return ""
}

// runs creates a pod in a space and has it run; at, if not empty, is where it
// then calls from.
func (in *inside) runs(t *testing.T, c kubernetes.Interface, space, name, at string, change ...func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	for _, f := range change {
		f(pod)
	}
	testhost.Eventually(t, "pod "+name+" is created", func(ctx context.Context) error {
		_, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err // its service account may not be there yet
	})
	of := translate.Space{Name: space}
	pods := testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods(of.HostNamespace())
	testhost.Eventually(t, "pod "+name+" runs", func(ctx context.Context) error {
		host, err := pods.Get(ctx, of.HostName("default", name, translate.LimitSubdomain), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if host.Status.Phase != corev1.PodRunning || host.Status.PodIP == "" {
			return fmt.Errorf("it is %s", host.Status.Phase)
		}
		if at != "" && host.Status.PodIP != at {
			host.Status.PodIP, host.Status.PodIPs = at, []corev1.PodIP{{IP: at}}
			if _, err := pods.UpdateStatus(ctx, host, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if at != "" {
		testhost.Eventually(t, at+" is known", func(context.Context) error {
			if got, ok := in.Host().SpaceAt(netip.MustParseAddr(at)); !ok || got != space {
				return fmt.Errorf("it is of %q", got)
			}
			return nil
		})
	}
}

// says asks the resolver as a pod; the answer is an rcode or the addresses.
func (in *inside) says(t *testing.T, pod, name string) string {
	t.Helper()
	client := &miekg.Client{Net: "udp", Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(pod)}}}
	reply, _, err := client.ExchangeContext(t.Context(), new(miekg.Msg).SetQuestion(miekg.Fqdn(name), miekg.TypeA), in.dns)
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Answer) == 0 {
		return miekg.RcodeToString[reply.Rcode]
	}
	var all []string
	for _, rr := range reply.Answer {
		all = append(all, rr.(*miekg.A).A.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// inCluster is what a client in a pod has: kubernetes.default, the authority of
// kube-root-ca.crt, and a service account's token.
func (in *inside) inCluster(pod, serverName, token string, ca []byte) *rest.Config {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(pod)}}
	return &rest.Config{
		Host: "https://" + serverName, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp4", in.api)
		},
	}
}

func podToken(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	var token string
	testhost.Eventually(t, "a token", func(ctx context.Context) error {
		request, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = request.Status.Token
		}
		return err
	})
	return token
}

// S6: from the moment a pod runs it has its space's names, and nobody else's.
// They come from the host alone: the space may sleep, and sleeps on.
func TestPodsResolveTheirSpacesNamesAlsoWhileItSleeps(t *testing.T) {
	in := startInside(t)
	a := virtual(t, startSpace(t, in.Shard, "dns-a"))
	b := virtual(t, startSpace(t, in.Shard, "dns-b"))
	in.runs(t, a, "dns-a", "caller", "127.0.1.1")
	in.runs(t, b, "dns-b", "caller", "127.0.1.2")
	in.runs(t, a, "dns-a", "db-0", "", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "db-0", "db" })
	service := func(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
		change(&s.Spec)
		s, err := a.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	web := service("web", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })
	service("db", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.Selector = corev1.ClusterIPNone, map[string]string{"app": "db-0"}
	})
	var address string
	testhost.Eventually(t, "db-0 has an address", func(ctx context.Context) error {
		pod, err := a.CoreV1().Pods("default").Get(ctx, "db-0", metav1.GetOptions{})
		if err != nil || pod.Status.PodIP == "" {
			return fmt.Errorf("none yet: %w", err)
		}
		address = pod.Status.PodIP
		return nil
	})
	testhost.Eventually(t, "the watch shows the API's service", func(context.Context) error {
		if in.address("dns-a") == "" {
			return errors.New("not yet")
		}
		return nil
	})
	names := func(t *testing.T) {
		t.Helper()
		for name, want := range map[string]string{
			"web.default.svc.cluster.local":                                      web.Spec.ClusterIP,
			"db.default.svc.cluster.local":                                       address,
			"db-0.db.default.svc.cluster.local":                                  address,
			"kubernetes.default.svc.cluster.local":                               in.address("dns-a"),
			strings.ReplaceAll(address, ".", "-") + ".default.pod.cluster.local": address,
			"nothing.default.svc.cluster.local":                                  "NXDOMAIN",
		} {
			testhost.Eventually(t, name, func(context.Context) error {
				if got := in.says(t, "127.0.1.1", name); got != want {
					return fmt.Errorf("it is %s, want %s", got, want)
				}
				return nil
			})
		}
		for _, name := range []string{"web.default.svc.cluster.local", "db-0.db.default.svc.cluster.local"} {
			if got := in.says(t, "127.0.1.2", name); got != "NXDOMAIN" {
				t.Errorf("another space's pod is told that %s is %s", name, got)
			}
		}
		if got := in.says(t, "127.0.1.3", "web.default.svc.cluster.local"); got != "REFUSED" {
			t.Errorf("a stranger is told that it is %s", got)
		}
	}
	names(t)
	in.falls(t, "dns-a")
	names(t)
	in.is(t, "dns-a", shard.ReasonAsleep, metav1.ConditionTrue)

	t.Run("the nameserver of its pods leads here", func(t *testing.T) {
		host := testhost.Clientset(t, theHost(t).Config())
		of := translate.Space{Name: "dns-a"}
		resolver, err := host.CoreV1().Services(of.HostNamespace()).Get(t.Context(), translate.DNSServiceName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod, err := host.CoreV1().Pods(of.HostNamespace()).Get(t.Context(), of.HostName("default", "caller", translate.LimitSubdomain), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.DNSPolicy != corev1.DNSNone || !slices.Equal(pod.Spec.DNSConfig.Nameservers, []string{resolver.Spec.ClusterIP}) {
			t.Errorf("the pod asks %+v, want %s", pod.Spec.DNSConfig, resolver.Spec.ClusterIP)
		}
		for service, want := range map[string]string{
			translate.DNSServiceName: "[7453 7453]", of.HostName("default", "kubernetes", translate.LimitLabel): "[7444]",
		} {
			found, err := host.DiscoveryV1().EndpointSlices(of.HostNamespace()).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
			if err != nil || len(found.Items) != 1 {
				t.Fatalf("service %s has %d slices: %v", service, len(found.Items), err)
			}
			var ports []int32
			for _, p := range found.Items[0].Ports {
				ports = append(ports, *p.Port)
			}
			if addresses := found.Items[0].Endpoints[0].Addresses; addresses[0] != "192.0.2.10" || fmt.Sprint(ports) != want {
				t.Errorf("service %s leads to %v, ports %v", service, addresses, ports)
			}
		}
	})

	t.Run("the address of a pod that has ended is nobody's", func(t *testing.T) {
		of := translate.Space{Name: "dns-b"}
		pods := testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods(of.HostNamespace())
		testhost.Eventually(t, "the pod ends", func(ctx context.Context) error {
			pod, err := pods.Get(ctx, of.HostName("default", "caller", translate.LimitSubdomain), metav1.GetOptions{})
			if err != nil {
				return err
			}
			pod.Status.Phase = corev1.PodFailed // and keeps its address in its status
			_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		})
		testhost.Eventually(t, "the address is refused", func(context.Context) error {
			if got := in.says(t, "127.0.1.2", "kubernetes.default.svc.cluster.local"); got != "REFUSED" {
				return errors.New(got)
			}
			return nil
		})
	})
}

// S6, A3: kubernetes.default is the API of the pod's own space, by whatever name
// clients call it, with what every pod has. It wakes a space that sleeps.
func TestPodsReachTheirSpacesAPI(t *testing.T) {
	in := startInside(t)
	a := virtual(t, startSpace(t, in.Shard, "api-a"))
	b := virtual(t, startSpace(t, in.Shard, "api-b"))
	in.runs(t, a, "api-a", "caller", "127.0.2.1")
	in.runs(t, b, "api-b", "caller", "127.0.2.2")
	var ca []byte
	testhost.Eventually(t, "kube-root-ca.crt", func(ctx context.Context) error {
		root, err := a.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil {
			ca = []byte(root.Data["ca.crt"])
		}
		return err
	})
	token := podToken(t, a)
	// A bare pod may ask who it is.
	ask := func(c *rest.Config) (string, error) {
		client, err := kubernetes.NewForConfig(c)
		if err != nil {
			return "", err
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return review.Status.UserInfo.Username, nil
	}
	const account = "system:serviceaccount:default:default"
	for _, name := range []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "kubernetes.default.svc.cluster.local", in.address("api-a")} {
		if who, err := ask(in.inCluster("127.0.2.1", name, token, ca)); err != nil || who != account {
			t.Errorf("at %s the pod is %q: %v", name, who, err)
		}
	}
	in.falls(t, "api-a")
	if who, err := ask(in.inCluster("127.0.2.1", "kubernetes.default.svc", token, ca)); err != nil || who != account {
		t.Errorf("asleep, the pod is %q: %v", who, err)
	}
	in.is(t, "api-a", shard.ReasonRunning, metav1.ConditionTrue)

	t.Run("another space's pod gets its own API, where the token is worthless", func(t *testing.T) {
		if who, err := ask(in.inCluster("127.0.2.2", "kubernetes.default.svc", token, ca)); !apierrors.IsUnauthorized(err) {
			t.Errorf("it is %q: %v", who, err)
		}
		if _, err := ask(in.inCluster("127.0.2.2", in.address("api-a"), token, ca)); err == nil || apierrors.IsUnauthorized(err) {
			t.Errorf("the certificate is good for another space's address: %v", err)
		}
	})
	t.Run("a stranger gets no connection", func(t *testing.T) {
		if _, err := ask(in.inCluster("127.0.2.9", "kubernetes.default.svc", token, ca)); err == nil {
			t.Error("it was answered")
		}
	})
	t.Run("paths lead nowhere else", func(t *testing.T) {
		c := in.inCluster("127.0.2.1", "kubernetes.default.svc", token, ca)
		for _, path := range []string{"/spaces/api-b/version", "/spaces/system/version"} {
			var code int
			err := testhost.Clientset(t, c).CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code).Error()
			if err == nil || code != http.StatusForbidden && code != http.StatusNotFound {
				t.Errorf("%s answers %d: %v", path, code, err)
			}
		}
	})
	t.Run("a connection ends with its pod", func(t *testing.T) {
		conn, err := tls.DialWithDialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.2.2")}}, "tcp4", in.api,
			&tls.Config{InsecureSkipVerify: true}) // whom it talks to is not the question
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		of := translate.Space{Name: "api-b"}
		err = testhost.Clientset(t, theHost(t).Config()).CoreV1().Pods(of.HostNamespace()).Delete(t.Context(),
			of.HostName("default", "caller", translate.LimitSubdomain), *metav1.NewDeleteOptions(0))
		if err != nil {
			t.Fatal(err)
		}
		testhost.Eventually(t, "the pod is gone", func(context.Context) error {
			if space, ok := in.Host().SpaceAt(netip.MustParseAddr("127.0.2.2")); ok {
				return fmt.Errorf("the address is %s's", space)
			}
			return nil
		})
		if _, err := fmt.Fprintf(conn, "GET /version HTTP/1.1\r\nHost: kubernetes\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 12)
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 421" {
			t.Errorf("the connection of a pod that is gone is answered %q: %v", answer, err)
		}
	})
}
