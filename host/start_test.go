// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/vcluster/pki"
)

// startHost starts a host that ends with the test.
func startHost(t *testing.T) *Cluster {
	t.Helper()
	cluster := start(t, t.TempDir())
	t.Cleanup(func() { stop(t, cluster) })
	return cluster
}

func start(t *testing.T, dir string) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	began := time.Now()
	cluster, err := Start(ctx, options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(began))
	return cluster
}

func options(t *testing.T, dir string) Options {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Dir: dir, Endpoint: "https://127.0.0.1:7443", ServingCA: ca.PEM()}
}

func stop(t *testing.T, cluster *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
	defer cancel()
	if err := cluster.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := cluster.Err(); err != nil {
		t.Errorf("stopped, yet it says that it ended by itself: %v", err)
	}
}

func newClient(t *testing.T, cluster *Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(clientConfig(cluster.Config(), "test"))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Started again on the same directory, a host goes on where it was (X3).
func TestRestartKeepsNodesPodsAndAddresses(t *testing.T) {
	dir := t.TempDir()
	cluster := start(t, dir)
	client := newClient(t, cluster)
	namespace := newNamespace(t, client, nil)
	for _, name := range []string{"first", "second"} {
		createPod(t, client, namespace, newPod(name))
		awaitPhase(t, client, namespace, name, corev1.PodRunning)
	}
	nodesBefore, podsBefore := nodeUIDs(t, client), listPods(t, client, namespace)
	stop(t, cluster)

	cluster = start(t, dir)
	t.Cleanup(func() { stop(t, cluster) })
	client = newClient(t, cluster)
	for name, uid := range nodeUIDs(t, client) {
		if nodesBefore[name] != uid {
			t.Errorf("node %s has UID %s, had %q", name, uid, nodesBefore[name])
		}
	}
	// A pod that is new must not get the address of one that was there.
	createPod(t, client, namespace, newPod("third"))
	awaitPhase(t, client, namespace, "third", corev1.PodRunning)
	addresses := map[string]string{}
	podsAfter := map[string]corev1.Pod{}
	for _, pod := range listPods(t, client, namespace) {
		if other, taken := addresses[pod.Status.PodIP]; taken {
			t.Errorf("%s and %s have the same address %s", pod.Name, other, pod.Status.PodIP)
		}
		addresses[pod.Status.PodIP] = pod.Name
		podsAfter[pod.Name] = pod
	}
	for _, before := range podsBefore {
		after := podsAfter[before.Name]
		if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP || after.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s with UID %s and address %s is now %s with UID %s and address %s", before.Name, before.UID,
				before.Status.PodIP, after.Status.Phase, after.UID, after.Status.PodIP)
		}
	}
}

func nodeUIDs(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, n := range list.Items {
		uids[n.Name] = string(n.UID)
		if !isReady(&n) {
			t.Errorf("node %s is not ready", n.Name)
		}
	}
	if len(uids) != defaultNodes {
		t.Errorf("%d nodes, want %d", len(uids), defaultNodes)
	}
	return uids
}

func TestFewerNodesRemoveSurplusOnes(t *testing.T) {
	cluster := startHost(t)
	client := newClient(t, cluster)
	if _, err := client.CoreV1().Nodes().Create(t.Context(), newNode(7).object(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	foreign := newNode(8).object()
	foreign.Name, foreign.Labels = "foreign", nil
	if _, err := client.CoreV1().Nodes().Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := removeSurplusNodes(t.Context(), client, newNodes(3)); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	if len(names) != 4 || names[0] != "foreign" || names[3] != "host-node-3" {
		t.Errorf("nodes %v are left, want three and the foreign one", names)
	}
}

func TestStopLeavesNoGoroutine(t *testing.T) {
	// The first start sets up what Kubernetes keeps for the process.
	stop(t, start(t, t.TempDir()))
	ignore := goleak.IgnoreCurrent()
	cluster := start(t, t.TempDir())
	client := newClient(t, cluster)
	namespace := newNamespace(t, client, nil)
	for _, name := range []string{"first", "second"} {
		createPod(t, client, namespace, newPod(name))
	}
	stop(t, cluster)
	verifyNoGoroutine(t, ignore)
}

// verifyNoGoroutine gives the scheduler's recorders of metrics the second that
// they sleep, during which nothing wakes them.
func verifyNoGoroutine(t *testing.T, ignore goleak.Option) {
	t.Helper()
	eventually(t, func(context.Context) error { return goleak.Find(ignore) })
}

// What may happen only once in a process must not be done by a host.
func TestTwoHostsRunInOneProcess(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, startHost(t))
			namespace := newNamespace(t, client, nil)
			createPod(t, client, namespace, newPod(name))
			awaitPhase(t, client, namespace, name, corev1.PodRunning)
			if pods := listPods(t, client, namespace); len(pods) != 1 {
				t.Errorf("%d pods, want the one that was made here", len(pods))
			}
		})
	}
}

func TestHostWhoseControlPlaneEndsSaysSo(t *testing.T) {
	cluster := start(t, t.TempDir())
	if err := cluster.Err(); err != nil {
		t.Errorf("it runs, yet has ended: %v", err)
	}
	if err := cluster.controlPlane.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-cluster.Done()
	if err := cluster.Err(); err == nil || !strings.Contains(err.Error(), "control plane has ended") {
		t.Errorf("it ended by itself, yet says %v", err)
	}
	if err := cluster.Stop(t.Context()); err != nil {
		t.Errorf("stop of a host that has ended: %v", err)
	}
}

// A kubeconfig works over TLS at the endpoint, for what its user may do (X2).
func TestKubeconfigServesWhomItIsFor(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cluster, err := Start(ctx, Options{
		Dir: t.TempDir(), Endpoint: "https://" + server.Listener.Addr().String(), ServingCA: ca.PEM(), Nodes: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, cluster) })
	server.Config.Handler = cluster.Handler()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)

	list := func(user string, groups ...string) error {
		kubeconfig, err := cluster.ClientKubeconfig(user, groups)
		if err != nil {
			return err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list("admin", pki.AdminGroup); err != nil {
		t.Errorf("admin: %v", err)
	}
	if err := list("stranger"); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights got %v, want it forbidden", err)
	}
}

func TestStartRefusesWhatItCannotSimulate(t *testing.T) {
	for _, count := range []int{-1, maxNodes + 1} {
		o := options(t, t.TempDir())
		o.Nodes = count
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "want 1 to 254") {
			t.Errorf("a host of %d nodes got %v", count, err)
		}
	}
}

func TestStartThatIsCutOffLeavesNothing(t *testing.T) {
	stop(t, start(t, t.TempDir()))
	ignore := goleak.IgnoreCurrent()
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		cluster, err := Start(ctx, options(t, t.TempDir()))
		cancel()
		if err == nil {
			t.Logf("started within %s", after)
			stop(t, cluster)
		}
	}
	verifyNoGoroutine(t, ignore)
}
