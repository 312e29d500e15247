// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/internal/testservers"
)

// platform is the namespace, on the shared berth's host, of a release of the chart.
const platform = "platform"

// chartsPlatform is what this release is called among the host's platforms: the shared berth is another.
const chartsPlatform = "chart"

// M4, X1: under exactly the rights that the chart gives it, Berth runs a space
// and syncs its pods, and is refused by the host what it does not need for that.
func TestTheChartsRightsAreEnoughAndFew(t *testing.T) {
	t.Parallel()
	existing := sharedBerth(t)
	host := existing.host(t)
	host.namespace(t, platform)
	args := []string{"template", "berth", "../charts/berth", "--namespace", platform, "--set", "spaces[0].name=warded,spaces[1].name=refilled,platformName=" + chartsPlatform}
	for _, file := range []string{"serviceaccount", "clusterrole", "role", "admissionpolicy"} {
		args = append(args, "--show-only", "templates/"+file+".yaml")
	}
	rights := helm(t, args...)
	host.apply(t, rights)
	t.Cleanup(func() { _, _ = host.tryKubectl(t, rights, "delete", "--ignore-not-found", "-f", "-") })
	account := host.account(t, platform, "berth")

	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	serve := func(more ...string) {
		t.Helper()
		b.process = spawn(t, append([]string{
			"serve", "--data-dir", b.dir, "--listen", "127.0.0.1:0", "--host-kubeconfig", account.kubeconfig, "--space", "warded,refilled",
			"--platform-name", chartsPlatform, "--space-role", "platform-berth-space", "--kubeconfig-secrets", platform, "--log-format", "json",
		}, more...)...)
		eventually(t, func() error {
			select {
			case <-b.done:
				t.Fatalf("berth serve ended: %v\n%s", b.state, b.output())
			default:
			}
			if !strings.Contains(b.stderr.String(), `"msg":"Serving spaces"`) {
				return errors.New("berth serve does not serve yet")
			}
			return nil
		})
	}
	serve()
	secrets := host.CoreV1().Secrets(platform)
	secret := await(t, secrets.Get, "warded-kubeconfig", there) // Berth serves before its spaces do
	if len(secret.OwnerReferences) > 0 || secret.Labels[labelSpace] != "" {
		t.Errorf("the secret with the kubeconfig has owners %v and labels %v", secret.OwnerReferences, secret.Labels)
	}
	if len(secret.Data) != 2 || !bytes.Equal(secret.Data["value"], secret.Data["kubeconfig"]) { // where Cluster API looks
		t.Errorf("the secret has %d keys, and under value %q", len(secret.Data), secret.Data["value"])
	}
	path := filepath.Join(t.TempDir(), "warded.kubeconfig")
	if err := os.WriteFile(path, secret.Data["kubeconfig"], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := runBerth(t, "check", path); code != 0 || !strings.HasPrefix(out, "warded: ready, Kubernetes v1.") {
		t.Errorf("berth check says %q%q and ends with %d", out, stderr, code)
	}
	space := newCluster(t, path)
	pod := space.run(t, "default", newPod("visitor", mounting("settings", "keys"), makes(t, space, "default", "settings", "keys")))
	space.serve(t, "default", newService("reachable"))
	if h := host.awaitRunning(t, "berth-warded", "warded--default--visitor"); h.Annotations[annotationUID] != string(pod.UID) {
		t.Errorf("the host's pod is that of %v", identityOf(h))
	}

	t.Run("a snapshot takes the place of a space that is listed", func(t *testing.T) {
		into := must(secrets.Get(t.Context(), "refilled-kubeconfig", metav1.GetOptions{}))(t)
		kept := filepath.Join(t.TempDir(), "refilled.kubeconfig")
		if err := os.WriteFile(kept, into.Data["kubeconfig"], 0o600); err != nil {
			t.Fatal(err)
		}
		bucket := "file://" + t.TempDir()
		berthDoes(t, "snapshot", "create", "warded", "--to", bucket, "--data-dir", b.dir)
		berthDoes(t, "snapshot", "restore", "warded", "--as", "refilled", "--replace", "--from", bucket, "--data-dir", b.dir)
		newCluster(t, kept).awaitRunning(t, "default", "visitor")
		host.awaitRunning(t, "berth-refilled", "refilled--default--visitor")
	})
	t.Run("a space that the chart does not name comes and goes with kubectl", func(t *testing.T) {
		applySpace(t, host, "unforeseen", "{platformName: "+chartsPlatform+"}")
		await(t, secrets.Get, "unforeseen-kubeconfig", there)
		if ns := must(host.CoreV1().Namespaces().Get(t.Context(), "berth-unforeseen", metav1.GetOptions{}))(t); ns.Labels["berth.dev/platform"] != chartsPlatform {
			t.Errorf("its namespace has the labels %v", ns.Labels)
		}
		host.kubectl(t, "delete", "space", "unforeseen", "--wait", "--timeout=120s")
		if left := traces(t, host, b.dir, "unforeseen"); len(left) > 0 {
			t.Errorf("it has left %q", left)
		}
		if _, err := secrets.Get(t.Context(), "unforeseen-kubeconfig", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it has left its kubeconfig: %v", err)
		}
	})
	t.Run("a ServiceAccount of the host owns a space", func(t *testing.T) { // O9
		host.kubectl(t, "create", "serviceaccount", "robot", "-n", platform)
		ownersAre(t, host, "warded", "{kind: HostServiceAccount, name: 'system:serviceaccount:"+platform+":robot'}")
		token := strings.TrimSpace(host.kubectl(t, "create", "token", "robot", "-n", platform, "--audience", "berth.dev"))
		if is := must(whoAmI(t, must(kubernetes.NewForConfig(withToken(space.config, token)))(t)))(t); is.Username != "berth:host:serviceaccount:"+platform+":robot" {
			t.Errorf("it is %s", is.Username)
		}
	})
	t.Run("by name and by verb", func(t *testing.T) { checkRefusedByRBAC(t, account) })
	t.Run("outside of spaces' namespaces", func(t *testing.T) { checkRefusedByPolicy(t, account) })
	t.Run("logs are JSON, and a stop is clean", func(t *testing.T) {
		b.stop(t, syscall.SIGTERM)
		for line := range strings.Lines(b.stderr.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("a line of the log is not JSON: %s", line)
			}
		}
	})
	t.Run("kubeconfigs lead to the advertised name", func(t *testing.T) { checkAdvertised(t, host, serve) })
	t.Run("a secret of somebody else's stays", func(t *testing.T) {
		b.stop(t, syscall.SIGTERM)
		if err := secrets.Delete(t.Context(), "warded-kubeconfig", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "warded-kubeconfig"}, Data: map[string][]byte{"kubeconfig": []byte("theirs")}}
		must(secrets.Create(t.Context(), other, metav1.CreateOptions{}))(t)
		serve()
		eventually(t, func() error {
			if !strings.Contains(b.stderr.String(), "has another owner") {
				return errors.New("the log does not say so")
			}
			return nil
		})
		if still := must(secrets.Get(t.Context(), other.Name, metav1.GetOptions{}))(t); string(still.Data["kubeconfig"]) != "theirs" {
			t.Error("it was overwritten")
		}
	})
}

// checkRefusedByRBAC tries what the roles don't grant.
func checkRefusedByRBAC(t *testing.T, account *cluster) {
	for _, what := range []string{
		"get secrets kube-system", "get secrets berth-warded", "get secrets platform", "create secrets kube-system", "update secrets platform", "list roles.rbac.authorization.k8s.io kube-system",
		"get configmaps kube-system", "create pods berth-warded", "create pods kube-system", "delete pods kube-system", "create pods/exec kube-system",
		"get pods/log kube-system", "create serviceaccounts/token kube-system", "create serviceaccounts/token berth-warded", "update nodes", "watch nodes",
		"create roles.rbac.authorization.k8s.io kube-system", "escalate roles.rbac.authorization.k8s.io kube-system", "escalate clusterroles.rbac.authorization.k8s.io",
		"bind clusterroles.rbac.authorization.k8s.io", "bind roles.rbac.authorization.k8s.io kube-system", "create rolebindings.rbac.authorization.k8s.io kube-system",
		"create clusterroles.rbac.authorization.k8s.io", "bind clusterroles.rbac.authorization.k8s.io kube-system", "create pods platform", "get statefulsets.apps platform",
		"create statefulsets.apps kube-system", "patch services kube-system", "patch clusterroles.rbac.authorization.k8s.io",
		"update namespaces", "patch namespaces/status", "delete networkpolicies.networking.k8s.io berth-warded",
		"patch resourcequotas/status kube-system", "update quotaledgers.berth.dev", "impersonate users", "impersonate groups", "impersonate serviceaccounts", "impersonate serviceaccounts kube-system", "impersonate serviceaccounts berth-demo",
		"update persistentvolumes", "create storageclasses.storage.k8s.io", "create customresourcedefinitions.apiextensions.k8s.io", "patch customresourcedefinitions.apiextensions.k8s.io",
	} {
		if mayOnHost(t, account, what) {
			t.Errorf("Berth may %s on the host", what)
		}
	}
	// What RBAC can't tell: that a list asks only for what bears a label. These are
	// the ways to what is outside of spaces, and they are read-only.
	for _, what := range []string{
		"list secrets kube-system", "list namespaces", "list rolebindings.rbac.authorization.k8s.io kube-system", "list customresourcedefinitions.apiextensions.k8s.io",
	} {
		if !mayOnHost(t, account, what) {
			t.Errorf("Berth may not %s any more: mend docs/reference/host-access.md, which says so, and this test", what)
		}
	}
	for user, groups := range map[string][]string{
		"system:admin": {"system:masters"},
		"system:serviceaccount:kube-system:default":       nil,
		"system:serviceaccount:kube-system:berth-syncer":  nil,
		"system:serviceaccount:berth-demo:berth-syncer":   nil, // of another platform's space
		"system:serviceaccount:berth-warded:default":      nil,
		"system:serviceaccount:berth-warded:berth-syncer": {"system:masters"},
	} {
		if _, err := account.as(t, user, groups...).CoreV1().Pods("berth-warded").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "impersonate") {
			t.Errorf("as %s of %v, pods are listed with %v, want the impersonation refused", user, groups, err)
		}
	}
	// As a space's account, which it may be, it stays in that space's namespace.
	syncer := account.as(t, "system:serviceaccount:berth-warded:berth-syncer")
	must(syncer.CoreV1().Pods("berth-warded").Get(t.Context(), "warded--default--visitor", metav1.GetOptions{}))(t)
	for _, namespace := range []string{"kube-system", platform, "berth-demo"} {
		if _, err := syncer.CoreV1().Secrets(namespace).Get(t.Context(), "any", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the space's account gets %v for a secret in %s, want Forbidden", err, namespace)
		}
	}
	if _, err := account.CoreV1().Secrets(platform).Get(t.Context(), "demo-kubeconfig", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the secret of a space that is not the release's: %v, want Forbidden", err)
	}
}

// checkRefusedByPolicy tries what RBAC grants of any name, or by name in all namespaces, and the
// admission policy refuses. The tests of charts try more of it.
func checkRefusedByPolicy(t *testing.T, account *cluster) {
	by := metav1.ApplyOptions{FieldManager: "berth-tenancy", Force: true}
	const says = "Berth may "
	for _, namespace := range []string{"kube-system", platform, "berth-demo"} {
		_, err := account.CoreV1().ServiceAccounts(namespace).Apply(t.Context(), corev1ac.ServiceAccount("berth-syncer", namespace), by)
		refused(t, "an account in "+namespace, err, says)
		_, err = account.CoreV1().LimitRanges(namespace).Apply(t.Context(), corev1ac.LimitRange("berth", namespace).WithSpec(corev1ac.LimitRangeSpec()), by)
		refused(t, "limits in "+namespace, err, says)
		_, err = account.RbacV1().RoleBindings(namespace).Apply(t.Context(), bindingOf(namespace, rbacv1.ServiceAccountKind, "berth-syncer"), by)
		refused(t, "a binding in "+namespace, err, says)
	}
	_, err := account.RbacV1().RoleBindings("berth-warded").Apply(t.Context(), bindingOf("berth-warded", rbacv1.ServiceAccountKind, "default"), by)
	refused(t, "a binding of what pods run as", err, says)
	relabelled := corev1ac.Namespace("berth-warded").WithLabels(map[string]string{labelSpace: "demo"})
	_, err = account.CoreV1().Namespaces().Apply(t.Context(), relabelled, by)
	refused(t, "a namespace labelled as another space's", err, says)
	for _, namespace := range []string{"kube-system", platform, "berth-demo"} {
		taken := []byte(`{"metadata":{"labels":{"` + labelSpace + `":"` + strings.TrimPrefix(namespace, "berth-") + `","berth.dev/platform":"` + chartsPlatform + `"}}}`)
		_, err = account.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, taken, metav1.PatchOptions{})
		refused(t, "the labels on "+namespace, err, says)
	}
	_, err = account.RbacV1().ClusterRoleBindings().Apply(t.Context(), rbacv1ac.ClusterRoleBinding("anybody").
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(platform+"-berth-space-dedicated-reader")), by)
	refused(t, "a binding in the whole cluster", err, says)
	for _, namespace := range []string{platform, "berth-demo"} { // of kube-system, the host itself refuses it
		refused(t, "the deletion of "+namespace, account.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}), says)
	}
}

func bindingOf(namespace, kind, account string) *rbacv1ac.RoleBindingApplyConfiguration {
	const role = "platform-berth-space"
	return rbacv1ac.RoleBinding(role, namespace).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(role)).
		WithSubjects(rbacv1ac.Subject().WithKind(kind).WithName(account).WithNamespace(namespace))
}

// X2: the Secret follows the URL under which tenants reach Berth, and the API endpoint's
// certificate is good for that.
func checkAdvertised(t *testing.T, host *cluster, serve func(...string)) {
	port := freePort(t)
	serve("--advertise", "https://spaces.example:8443", "--listen", "127.0.0.1:"+port)
	secret := await(t, host.CoreV1().Secrets(platform).Get, "warded-kubeconfig", func(s *corev1.Secret) error {
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
		if err != nil {
			return err
		}
		return expect("where the kubeconfig leads", config.Host, "https://spaces.example:8443/spaces/warded")
	})
	config := must(clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]))(t)
	// What a tenant's resolver and router would do.
	config.Host = "https://127.0.0.1:" + port + "/spaces/warded"
	config.ServerName = "spaces.example"
	client := must(kubernetes.NewForConfig(config))(t)
	must(client.CoreV1().Pods("default").Get(t.Context(), "visitor", metav1.GetOptions{}))(t)
}

// freePort is one that nobody listens on, for a process that is told where to listen.
func freePort(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(must(testservers.FreePort())(t))
}

// freeAddress is one with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + freePort(t)
}

// defaultToken is a token of the service account default, which a new space has a moment later.
func (c *cluster) defaultToken(t *testing.T) (token string) {
	t.Helper()
	eventually(t, func() error {
		made, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = made.Status.Token
		}
		return err
	})
	return token
}

// account is the API for a service account, by a token of its own.
func (c *cluster) account(t *testing.T, namespace, name string) *cluster {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	token := must(c.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, request, metav1.CreateOptions{}))(t)
	config := clientcmdapi.NewConfig()
	config.Clusters["host"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["host"] = &clientcmdapi.Context{Cluster: "host", AuthInfo: name}
	config.CurrentContext = "host"
	path := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, path)
}
