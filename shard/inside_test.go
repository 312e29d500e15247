// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
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
	*testEnv
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
	in.testEnv = newEnv(t, func(c *shard.Config) {
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

// inCluster is what a client in a pod has: kubernetes.default, the CA of
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
