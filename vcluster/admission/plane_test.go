// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/admission"
	"github.com/berth-dev/berth/vcluster/pki"
)

const testTimeout = time.Minute

// space is a real control plane with Berth's plugins, and a host that only
// gives out addresses.
type space struct {
	outside kubernetes.Interface // a tenant's admin, through TLS
	inside  kubernetes.Interface // Berth itself
	host    *addresses
	account *bounds.Account
}

// addresses gives out cluster IPs and node ports, and remembers who asked.
type addresses struct {
	mu    sync.Mutex
	asked []*corev1.Service
	given int
	err   error
}

func (h *addresses) reserve(_ context.Context, v *corev1.Service, _ admission.Current) (*corev1.Service, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, v.DeepCopy())
	if h.err != nil {
		return nil, h.err
	}
	host := v.DeepCopy()
	if host.Spec.ClusterIP == "" {
		h.given++
		host.Spec.ClusterIP = fmt.Sprintf("10.96.7.%d", h.given)
		host.Spec.ClusterIPs = []string{host.Spec.ClusterIP}
	}
	for i := range host.Spec.Ports {
		if host.Spec.Type == corev1.ServiceTypeNodePort && host.Spec.Ports[i].NodePort == 0 {
			h.given++
			host.Spec.Ports[i].NodePort = int32(30500 + h.given)
		}
	}
	return host, nil
}

// asks returns those who asked by a name since it was last called.
func (h *addresses) asks(name string) []*corev1.Service {
	h.mu.Lock()
	defer h.mu.Unlock()
	var asked, others []*corev1.Service
	for _, v := range h.asked {
		if v.Name == name {
			asked = append(asked, v)
		} else {
			others = append(others, v)
		}
	}
	h.asked = others
	return asked
}

func (h *addresses) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func startSpace(t *testing.T) *space {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &space{host: &addresses{}, account: bounds.NewAccount(bounds.Limits{bounds.ServicePortsTotal: 250})}
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name: "guarded", Dir: t.TempDir(), Endpoint: "https://" + listener.Addr().String(), ServingCA: ca.PEM(),
		Controllers: vcluster.SpaceControllers(), HiddenNodes: true, Account: s.account,
		Admission: []vcluster.Admission{
			{Name: "BerthServiceAddresses", New: func() (apiadmission.Interface, error) { return admission.NewAddresses(s.host.reserve, s.account), nil }},
			{Name: "BerthIsolation", New: func() (apiadmission.Interface, error) {
				return admission.NewIsolation(false, false, translate.Placement{}, &translate.Settings{}), nil
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	certificate, err := ca.Serving("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server := gateway.Serve(listener, certificate.Get, plane.Handler(), klog.Background())
	t.Cleanup(func() { server.Stop(context.WithoutCancel(t.Context())) })
	kubeconfig, err := plane.ClientKubeconfig("admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if s.outside, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.inside, err = kubernetes.NewForConfig(plane.Loopback()); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := s.inside.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
