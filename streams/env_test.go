// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// hostNode is the name of the host's one node: whoever reads it in a space has
// been told what tenants are not.
const hostNode = "secret-host-node-7"

// testEnv is a host cluster with a node that answers, and a shard behind a gateway.
type testEnv struct {
	url     string // of the space's API
	config  *rest.Config
	host    kubernetes.Interface
	kubelet *kubelet
	shard   *shard.Shard
	stops   []func(context.Context) error
	closes  []func()

	mu     sync.Mutex
	routes map[string]http.Handler
}

// newEnv starts all of it in dir.
func newEnv(dir string) (*testEnv, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	env := &testEnv{routes: map[string]http.Handler{}}
	if err := env.start(ctx, dir); err != nil {
		return nil, errors.Join(err, env.Close())
	}
	return env, nil
}

func (env *testEnv) start(ctx context.Context, dir string) error {
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "serving")
	if err != nil {
		return err
	}
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return err
	}
	env.url = env.serve(cert, &gateway.Router{Lookup: env.lookup, TenantOf: func(space string) string { return space }})
	// The host has a port of its own, and its API the root, as clusters have.
	hostURL := env.serve(cert, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { env.lookup(gateway.SystemSpace).ServeHTTP(w, r) }))

	host, err := vcluster.Start(ctx, vcluster.Config{
		Name: "host", Dir: filepath.Join(dir, "host"), Endpoint: hostURL, ServingCA: ca.PEM(),
		Controllers: vcluster.HostControllers(), Dial: (&net.Dialer{}).DialContext, Usage: measure{},
	})
	if err != nil {
		return err
	}
	env.stops = append(env.stops, host.Stop)
	env.route(gateway.SystemSpace, host.Handler())
	kubeconfig, err := host.ClientKubeconfig("admin", []string{pki.AdminGroup})
	if err != nil {
		return err
	}
	if env.config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return err
	}
	env.config.QPS = -1
	if env.host, err = kubernetes.NewForConfig(env.config); err != nil {
		return err
	}
	env.kubelet = startKubelet(dir)
	env.closes = append(env.closes, env.kubelet.server.Close)
	if err := env.addNode(ctx); err != nil {
		return err
	}
	env.shard, err = shard.Start(ctx, shard.Config{
		Dir: filepath.Join(dir, "spaces"), Host: env.config, ServingCA: ca.PEM, Logger: klog.Background(),
		Endpoint: func(space string) string { return env.url + gateway.Path(space) },
	})
	if err == nil {
		env.stops = append(env.stops, env.shard.Stop)
	}
	return err
}

func (env *testEnv) serve(cert tls.Certificate, h http.Handler) (url string) {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	env.closes = append(env.closes, s.Close)
	return s.URL
}

func (env *testEnv) route(space string, h http.Handler) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.routes[space] = h
}

func (env *testEnv) lookup(space string) http.Handler {
	env.mu.Lock()
	defer env.mu.Unlock()
	if h := env.routes[space]; h != nil {
		return h
	}
	if env.shard != nil {
		if h := env.shard.Handler(space); h != nil {
			return h
		}
	}
	return nil
}

func (env *testEnv) addNode(ctx context.Context) error {
	n, err := env.host.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: hostNode}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.ResourceVersion = "" // controllers write to it meanwhile
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = env.kubelet.port()
	_, err = env.host.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

// Close stops what was started, last first.
func (env *testEnv) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	for i := len(env.stops) - 1; i >= 0; i-- {
		if e := env.stops[i](ctx); e != nil {
			err = e
		}
	}
	for i := len(env.closes) - 1; i >= 0; i-- {
		env.closes[i]()
	}
	return err
}

// space is a tenant's, seen by its admin.
type space struct {
	kubernetes.Interface
	*testEnv
	name   string
	config *rest.Config
}

func (env *testEnv) space(t *testing.T, name string) *space {
	t.Helper()
	admin, err := client.New(env.config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.Apply(t.Context(), admin, translate.Space{Name: name}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	running, err := env.shard.StartSpace(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		defer cancel()
		if err := env.shard.StopSpace(ctx, name); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := running.Kubeconfig("admin", []string{pki.AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "its service account", func(ctx context.Context) error {
		_, err := clients.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return &space{Interface: clients, testEnv: env, name: name, config: config}
}

// hostPod is where a pod of the space is on the host.
func (s *space) hostPod(name string) string { return s.name + "--default--" + name }

func (s *space) hostNamespace() string { return "berth-" + s.name }

func newPod(name string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c, Image: "image.invalid/" + c})
	}
	return pod
}

// run creates a pod, and returns it once it runs.
func (s *space) run(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	if _, err := s.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bind(t, pod.Name)
	s.ready(t, pod.Name)
	var running *corev1.Pod
	testhost.Eventually(t, "run pod "+pod.Name, func(ctx context.Context) (err error) {
		if running, err = s.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{}); err == nil && running.Status.PodIP == "" {
			err = fmt.Errorf("pod %s is %s", pod.Name, running.Status.Phase)
		}
		return err
	})
	return running
}

// bind has the host's node take a pod.
func (s *space) bind(t *testing.T, name string) {
	t.Helper()
	testhost.Eventually(t, "bind pod "+name, func(ctx context.Context) error {
		return s.host.CoreV1().Pods(s.hostNamespace()).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: s.hostPod(name)}, Target: corev1.ObjectReference{Kind: "Node", Name: hostNode},
		}, metav1.CreateOptions{})
	})
}

// ready says what a kubelet would of a pod that runs.
func (s *space) ready(t *testing.T, name string) {
	t.Helper()
	testhost.Eventually(t, "report pod "+name, func(ctx context.Context) error {
		pods := s.host.CoreV1().Pods(s.hostNamespace())
		pod, err := pods.Get(ctx, s.hostPod(name), metav1.GetOptions{})
		if err != nil {
			return err
		}
		ip := podIP(name)
		pod.ResourceVersion = ""
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "127.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		for _, c := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			})
		}
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// podIP is an address of a pod's own, by its name.
func podIP(name string) string {
	sum := byte(0)
	for i := range len(name) {
		sum = sum*31 + name[i]
	}
	return fmt.Sprintf("198.51.100.%d", 1+sum%250)
}
