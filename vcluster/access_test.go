// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

func TestAServiceAccountMayDoWhatRBACGivesIt(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "rbac"))
	masters := clientset(t, admin(t, p))
	reader := clientset(t, bearer(t, p, token(t, p, "default", "reader")))

	_, err := reader.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list before it is allowed: %v", err)
	}
	_, err = masters.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = masters.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := reader.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	})
	for what, f := range map[string]func() error{
		"list in another namespace": func() error {
			_, err := reader.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"another verb": func() error {
			_, err := reader.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		},
		"another kind": func() error {
			_, err := reader.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"give itself more": func() error {
			_, err := reader.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "reader"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := f(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Secrets of type service-account-token still get a token.
func TestALegacyTokenSecretIsFilledIn(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "legacy")
	p := gateway.start(t, c)
	client := clientset(t, p.Loopback())
	account(t, p, "default", "robot")
	_, err := client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var secret *corev1.Secret
	eventually(t, func() error {
		secret, err = client.CoreV1().Secrets("default").Get(t.Context(), "robot", metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errEmpty
		}
		return err
	})
	if got := string(secret.Data[corev1.ServiceAccountRootCAKey]); got != string(c.ServingCA) {
		t.Errorf("its CA is %q", got)
	}
	robot := clientset(t, bearer(t, p, string(secret.Data[corev1.ServiceAccountTokenKey])))
	who, err := robot.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := who.Status.UserInfo.Username; got != "system:serviceaccount:default:robot" {
		t.Errorf("it is %q", got)
	}
}

// T2, A3: what one space hands out is worth nothing in another.
func TestCredentialsOfOneSpaceAreRefusedByAnother(t *testing.T) {
	gateway := newTestGateway(t)
	one := gateway.start(t, gateway.config(t, "one"))
	two := gateway.start(t, gateway.config(t, "two"))

	foreignCert := admin(t, one)
	foreignToken := bearer(t, one, token(t, one, "default", "robot"))
	account(t, two, "default", "robot") // the same account exists here
	for what, c := range map[string]*rest.Config{"certificate": foreignCert, "token": foreignToken} {
		if _, err := clientset(t, c).Discovery().ServerGroups(); err != nil {
			t.Errorf("%s where it comes from: %v", what, err)
		}
		c = rest.CopyConfig(c)
		c.Host = admin(t, two).Host
		if _, err := clientset(t, c).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s in another space: %v", what, err)
		}
	}
}

// A6
func TestIdentityHeadersOfClientsChangeNothing(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "headers"))
	mallory := user(t, p, "mallory")
	mallory.NextProtos = []string{"http/1.1"} // HTTP/2 has no Connection header
	request := func(header map[string]string) int {
		c, err := rest.HTTPClientFor(mallory)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, mallory.Host+"/api/v1/secrets", nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		return resp.StatusCode
	}
	for reason, header := range map[string]map[string]string{
		"no header: RBAC refuses":        {},
		"a front proxy's":                {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
		"a front proxy's, with extras":   {"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all", "X-Remote-Uid": "0"},
		"impersonation without a right":  {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
		"hop-by-hop":                     {"Connection": "Impersonate-User, X-Remote-User", "X-Remote-User": "admin"},
		"basic authentication":           {"X-Remote-Group": "system:masters", "Forwarded": "for=127.0.0.1"},
		"the API server's own user name": {"X-Remote-User": "system:apiserver"},
	} {
		if code := request(header); code != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", reason, code)
		}
	}
	if code := request(map[string]string{"Authorization": "Bearer guess"}); code != http.StatusUnauthorized && code != http.StatusForbidden {
		t.Errorf("a guessed token: %d", code)
	}
}

// A certificate counts only for what its CA made it for.
func TestOnlyClientCertificatesOfTheSpaceAuthenticate(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "certs")
	p := gateway.start(t, c)
	space, err := pki.OpenCA(c.Dir+"/pki", "")
	if err != nil {
		t.Fatal(err)
	}
	server, err := space.Server("system:masters")
	if err != nil {
		t.Fatal(err)
	}
	serving, err := gateway.ca.Client("admin", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	for reason, pair := range map[string]pki.Pair{
		"a server certificate of the space's CA":                server,
		"a client certificate of the CA of the shared TLS port": serving,
	} {
		with := rest.CopyConfig(admin(t, p))
		with.CertData, with.KeyData = pair.Cert, pair.Key
		if _, err := clientset(t, with).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// What is about the process is about every space in it.
func TestTheProcessIsNotServedToTenants(t *testing.T) {
	p := start(t, config(t, "process"))
	client := clientset(t, p.Loopback()).RESTClient()
	for _, path := range []string{
		"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/logs", "/logs/", "/flagz", "/statusz", "/configz",
	} {
		if err := client.Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Upstream looks for components on ports of this machine.
	components, err := clientset(t, p.Loopback()).CoreV1().ComponentStatuses().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(components.Items) > 0 {
		t.Errorf("component statuses: %v, %v", components, err)
	}
}

func account(t *testing.T, p *vcluster.ControlPlane, namespace, name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := clientset(t, p.Loopback()).CoreV1().ServiceAccounts(namespace).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// token asks for a token of a service account, as a kubelet does.
func token(t *testing.T, p *vcluster.ControlPlane, namespace, name string) string {
	t.Helper()
	account(t, p, namespace, name)
	request, err := clientset(t, p.Loopback()).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// bearer is a client of the space that has nothing but a token.
func bearer(t *testing.T, p *vcluster.ControlPlane, token string) *rest.Config {
	t.Helper()
	c := rest.AnonymousClientConfig(admin(t, p))
	c.BearerToken = token
	c.QPS = -1
	return c
}
