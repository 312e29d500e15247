// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/internal/testruntime"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/vcluster/pki"
)

// platform makes what a Berth in the cluster has on the host: the Service, the pod, and the Secrets of the space solar, whose API
// is that of the host. server is its URL.
func (h *testHost) platform(t *testing.T, server string) {
	t.Helper()
	h.make(t, newSpace("solar", "acme"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth"}}
	if err := client.IgnoreAlreadyExists(h.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	h.secret(t, "berth", "solar-kubeconfig", h.kubeconfig(t, server, "admin", pki.AdminGroup), "", "")
	h.secret(t, "berth", "solar-owner-1", h.kubeconfig(t, server, "alice", "berth.dev"), "User", "alice")
	h.secret(t, "berth", "solar-owner-2", h.kubeconfig(t, server, "someone", "devs", "berth.dev"), "Group", "devs")
	h.secret(t, "berth", "solar-argocd-cluster", []byte("no kubeconfig"), "", "")
}

func (h *testHost) secret(t *testing.T, namespace, name string, kubeconfig []byte, kind, owner string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"berth.dev/kubeconfig": "solar"}},
		Type:       "berth.dev/kubeconfig", Data: map[string][]byte{"kubeconfig": kubeconfig},
	}
	if kind != "" {
		secret.Labels["berth.dev/owner-kind"] = kind
		secret.Annotations = map[string]string{"berth.dev/owner": owner}
	}
	h.forget(t, secret.DeepCopy())
	if err := h.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// userOf returns the user and the groups of a kubeconfig, as the host sees them.
func (h *testHost) userOf(t *testing.T, kubeconfig []byte) string {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	review := testhost.Clientset(t, config).AuthenticationV1().RESTClient().Post().AbsPath("/apis/authentication.k8s.io/v1/selfsubjectreviews").
		Body([]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json")
	answer, err := review.DoRaw(t.Context())
	var who struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if err != nil || json.Unmarshal(answer, &who) != nil {
		t.Fatalf("%s (%v)", answer, err)
	}
	user := who.Status.UserInfo
	return user.Username + " " + strings.Join(slices.DeleteFunc(user.Groups, func(g string) bool { return strings.HasPrefix(g, "system:") }), ",")
}

// X2: connect gets the kubeconfig of the admin or of an owner, prints it, merges it, or runs a command with it.
func TestConnectUsesTheSecretsOfTheHost(t *testing.T) {
	h := use(t)
	server := h.server.URL + testSpacePath
	h.platform(t, server)
	for owner, want := range map[string]string{"": "admin berth:admins", "alice": "alice berth.dev", "User:alice": "alice berth.dev", "Group:devs": "someone berth.dev,devs"} {
		config := []byte(must(t, "space", "connect", "solar", "--as-owner", owner, "--print"))
		if got := strings.Split(h.userOf(t, config), " "); got[0] != strings.Split(want, " ")[0] {
			t.Errorf("%q is %q, want %q", owner, got, want)
		}
	}

	out, progress, err := berth(t, "space", "connect", "solar", "--as-owner", "alice", "--", "sh", "-c", "echo out; echo err >&2; cat $KUBECONFIG; exit 3")
	if exit, ok := errors.AsType[*connection.ExitError](err); !ok || exit.Code != 3 {
		t.Errorf("the command ends with %v", err)
	}
	if !strings.HasPrefix(out, "out\n") || !strings.Contains(out, "current-context: berth_solar_alice") || !strings.Contains(out, "server: "+server) || progress != "err\n" {
		t.Errorf("the command printed %q and %q", out, progress)
	}

	file := filepath.Join(t.TempDir(), "config")
	if out := must(t, "space", "connect", "solar", "--kubeconfig", file); out != fmt.Sprintf("Context \"berth_solar\" is the current one in %s\n", file) {
		t.Errorf("printed %q", out)
	}
	merged, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.userOf(t, merged); !strings.HasPrefix(got, "admin ") {
		t.Errorf("merged is %q", got)
	}
}

// X2: what can't be connected to is explained.
func TestConnectExplainsWhatIsMissing(t *testing.T) {
	h := use(t)
	h.platform(t, h.server.URL+testSpacePath)
	h.make(t, newSpace("stellar", ""))
	h.secret(t, "default", "solar-kubeconfig", h.kubeconfig(t, h.server.URL, "mallory"), "", "")
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"solar"}, "several Secrets have a kubeconfig of space solar: berth/solar-kubeconfig, default/solar-kubeconfig; choose one with --secret-namespace"},
		{[]string{"lunar"}, `spaces.berth.dev "lunar" not found; see 'berth space get' for those that the host has`},
		{[]string{"stellar"}, "no Secret stellar-kubeconfig with the label berth.dev/kubeconfig=stellar found in any namespace of the host; check that the space has started"},
		{[]string{"solar", "--secret-namespace", "kube-system"}, "found in namespace kube-system of the host"},
		{[]string{"solar", "--as-owner", "bob"}, "bob is no owner of space solar with a kubeconfig in any namespace of the host; found: Group:devs, User:alice"},
		{[]string{"solar", "--as-owner", "Group:alice"}, "alice is no owner"},
		{[]string{"solar", "--as-owner", "ServiceAccount:ci:robot"}, "--as-owner=ServiceAccount:ci:robot: must be a User or a Group; a ServiceAccount has no kubeconfig"},
		{[]string{"solar", "--as-owner", "HostServiceAccount:ci:robot"}, "--as-owner=HostServiceAccount:ci:robot: must be a User or a Group; a ServiceAccount has no kubeconfig"},
		{[]string{"solar", "--print", "--", "ls"}, "--print prints the kubeconfig, and runs no command"},
		{[]string{"solar", "--kubeconfig", "f", "--", "ls"}, "--kubeconfig=f is a file to add a context to"},
		{[]string{"solar", "extra"}, "put a command after '--'"},
		{[]string{"--", "ls"}, "needs the name of one space"},
		{[]string{"solar", "--secret-namespace", "berth", "--", "/no/such/command"}, "/no/such/command"},
		{[]string{"solar", "--as", "jane"}, "name the namespace with --secret-namespace if you may read its Secrets only"},
		{[]string{"solar", "--data-dir", t.TempDir()}, "has no kubeconfig of space solar"},
	} {
		if out, _, err := berth(t, append([]string{"space", "connect"}, tc.args...)...); err == nil || !strings.Contains(err.Error(), tc.says) || out != "" {
			t.Errorf("%q: got %v and %q, want %q", tc.args, err, out, tc.says)
		}
	}
}

// X2, U7: if the address doesn't answer, the host's API leads to the pod of Berth, whose certificate is still checked.
func TestConnectForwardsAPortToThePod(t *testing.T) {
	h := use(t)
	h.platform(t, "https://berth.berth.svc:7443"+testSpacePath)
	h.pod(t)

	keys, notes, err := berth(t, "space", "keys", "solar", "namespaces", "clusterroles", "tenants.berth.dev", "spaces")
	if err != nil || !strings.Contains(notes, "https://berth.berth.svc:7443/spaces/solar can't be reached from here; forwarding a port to pod berth/berth-0 by the host's API") {
		t.Fatalf("got %v and %q", err, notes)
	}
	for _, key := range []string{"/registry/namespaces/acme/kube-system", "/registry/namespaces/acme/berth", "/registry/clusterroles/acme/cluster-admin", "/registry/berth.dev/spaces/acme/solar"} {
		if !slices.Contains(strings.Split(keys, "\n"), key) {
			t.Errorf("no %s in:\n%s", key, keys)
		}
	}

	if out := must(t, "space", "wake", "solar"); out != "space/solar awake\n" {
		t.Errorf("printed %q", out)
	}

	out := must(t, "space", "connect", "solar", "--", "sh", "-c", "cat $KUBECONFIG")
	if !strings.Contains(out, "server: https://127.0.0.1:") || !strings.Contains(out, "tls-server-name: berth.berth.svc") {
		t.Errorf("the command has\n%s", out)
	}

	// Without a command, the context works until the command is interrupted, and keeps the address for others.
	file := filepath.Join(t.TempDir(), "config")
	ctx, cancel := context.WithCancel(t.Context())
	_, progress, ended := begin(ctx, "space", "connect", "solar", "--kubeconfig", file)
	testhost.Eventually(t, "forward", func(context.Context) error {
		if !strings.Contains(progress.String(), "press Ctrl+C") {
			return errors.New(progress.String())
		}
		return nil
	})
	during, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.userOf(t, during); !strings.HasPrefix(got, "admin ") {
		t.Errorf("merged is %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after, err := clientcmd.LoadFromFile(file); err != nil || after.Clusters["berth_solar"].Server != "https://berth.berth.svc:7443"+testSpacePath || after.Clusters["berth_solar"].TLSServerName != "" {
		t.Errorf("the context stays as %+v (%v)", after, err)
	}
}

// pod makes the Service of Berth and its pod, on a node whose kubelet forwards ports to this process.
func (h *testHost) pod(t *testing.T) {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil || !strings.HasPrefix(r.URL.Path, "/portForward/berth/berth-0") {
			http.Error(w, fmt.Sprint(r.URL, err), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, &testruntime.Runtime{}, "berth-0", "", options, time.Hour, time.Minute, portforward.SupportedProtocols)
	}))
	t.Cleanup(kubelet.Close)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cli-node"}}
	h.forget(t, node.DeepCopy())
	if err := h.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "make the node", func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = portOf(t, kubelet.URL)
		return h.Status().Update(ctx, node)
	})
	labels := map[string]string{"app.kubernetes.io/name": "berth"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: "berth", Labels: labels}, Spec: corev1.ServiceSpec{
		Selector: labels, Ports: []corev1.ServicePort{{Name: "https", Port: 7443, TargetPort: intstr.FromString("https")}},
	}}
	h.forget(t, service.DeepCopy())
	if err := h.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berth", Name: "berth-0", Labels: labels},
		Spec: corev1.PodSpec{NodeName: "cli-node", AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{
			{Name: "berth", Image: "berth", Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: portOf(t, h.server.URL)}}},
		}},
	}
	testhost.Eventually(t, "make the pod", func(ctx context.Context) error { return client.IgnoreAlreadyExists(h.Create(ctx, pod)) })
	t.Cleanup(func() { _ = h.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	testhost.Eventually(t, "make the pod ready", func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		return h.Status().Update(ctx, pod)
	})
}

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(parsed.Host)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// X3: what needs the control socket says where it is.
func TestCommandsOfTheSocketSayWhereToRunThem(t *testing.T) {
	h := use(t)
	h.platform(t, "https://berth.berth.svc:7443"+testSpacePath)
	for says, args := range map[string][]string{
		"kubectl --namespace NAMESPACE exec POD -- berth sleep solar": {"space", "sleep", "solar"},
	} {
		if _, _, err := berth(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", args, err)
		}
	}
	h.pod(t)
	for says, args := range map[string][]string{
		"the host's API has no way to put a space to sleep, so run it in the pod of Berth: kubectl --namespace berth exec berth-0 -- berth sleep solar": {"space", "sleep", "solar"},
		"kubectl --namespace berth exec berth-0 -- berth snapshot create solar":                                                                         {"space", "snapshot", "solar"},
		"kubectl --namespace berth exec berth-0 -- berth snapshot restore solar/1":                                                                      {"space", "restore", "solar/1"},
		"the Berth server is not running":                                        {"sleep", "solar"},
		"wake space lunar by a request, because the Berth server is not running": {"wake", "lunar"},
	} {
		if _, _, err := berth(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", args, err)
		}
	}
}

// X3: a data directory that is named is the only way to wake a space.
func TestWakeKeepsToTheDataDirectoryThatIsNamed(t *testing.T) {
	h := use(t)
	h.platform(t, h.server.URL+testSpacePath)
	dir := t.TempDir()
	if _, _, err := berth(t, "wake", "solar", "--data-dir", dir); err == nil || !strings.HasPrefix(err.Error(), "the Berth server is not running on "+dir) {
		t.Errorf("got %v", err)
	}
}

// X2, X3: without a Secret, the kubeconfig of a Berth on this machine is used, unless another host is chosen.
func TestConnectUsesTheDataDirectoryOfThisMachine(t *testing.T) {
	h := use(t)
	h.make(t, newSpace("solar", "acme"))
	dir := t.TempDir()
	t.Setenv("BERTH_DATA_DIR", dir)
	server := h.server.URL + testSpacePath
	if err := os.WriteFile(filepath.Join(dir, "solar.kubeconfig"), h.kubeconfig(t, server, "admin", pki.AdminGroup), 0o600); err != nil {
		t.Fatal(err)
	}
	out, notes, err := berth(t, "space", "connect", "solar", "--print")
	if err != nil || !strings.Contains(out, "server: "+server) || !strings.Contains(notes, "Using the space solar of the Berth on this machine: no Secret solar-kubeconfig") {
		t.Errorf("got %q and %q (%v)", out, notes, err)
	}
	if out, notes, err := berth(t, "space", "connect", "solar", "--print", "--data-dir", dir); err != nil || notes != "" || !strings.Contains(out, "server: "+server) {
		t.Errorf("got %q and %q (%v)", out, notes, err)
	}
	if _, _, err := berth(t, "space", "connect", "solar", "--print", "--host-kubeconfig", os.Getenv("KUBECONFIG")); err == nil || !strings.Contains(err.Error(), "no Secret solar-kubeconfig") {
		t.Errorf("another host is chosen: %v", err)
	}
	if _, _, err := berth(t, "space", "connect", "solar", "--print", "--data-dir", dir, "--as-owner", "bob"); err == nil || !strings.Contains(err.Error(), "--as-owner=bob: is no owner of space solar; found: Group:devs, User:alice") {
		t.Errorf("got %v", err)
	}
	// The host of a Berth on this machine is used if no other is set.
	t.Setenv("KUBECONFIG", "")
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		t.Skip("this machine has a kubeconfig of its own")
	}
	if err := os.WriteFile(filepath.Join(dir, "host.kubeconfig"), h.kubeconfig(t, h.server.URL, "admin", pki.AdminGroup), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "space", "get", "solar", "-o", "name"); out != "space.berth.dev/solar\n" {
		t.Errorf("printed %q", out)
	}
	for _, args := range [][]string{nil, {"--host-kubeconfig", filepath.Join(dir, "host.kubeconfig")}} {
		out, notes, err := berth(t, slices.Concat([]string{"space", "connect", "solar"}, args, []string{"--", "sh", "-c", "cat $KUBECONFIG"})...)
		if err != nil || notes != "" || !strings.Contains(out, "server: "+server) {
			t.Errorf("%q: got %q and %q (%v)", args, out, notes, err)
		}
	}
}

// X2: a kubeconfig that is issued on this machine ends with the owner, as those in Secrets do.
func TestConnectIssuesKubeconfigsThatEndWithTheOwner(t *testing.T) {
	h := use(t)
	h.make(t, newSpace("solar", "acme"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "solar.kubeconfig"), h.kubeconfig(t, h.server.URL+testSpacePath, "admin", pki.AdminGroup), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.OpenCA(kubeconfig.ClientKeys(dir, "solar"), pki.SpaceCA("solar")); err != nil {
		t.Fatal(err)
	}
	for text, owner := range map[string]pki.Owner{"alice": {Kind: "User", Name: "alice"}, "Group:devs": {Kind: "Group", Name: "devs"}} {
		config, err := clientcmd.Load([]byte(must(t, "space", "connect", "solar", "--print", "--data-dir", dir, "--as-owner", text)))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].ClientCertificateData)
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !slices.Equal(pki.OwnersOf(certificate), []pki.Owner{owner}) {
			t.Errorf("the certificate of %s is that of %v, want %v (%v)", text, pki.OwnersOf(certificate), owner, err)
		}
	}
}
