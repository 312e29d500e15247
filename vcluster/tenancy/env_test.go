// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

const testTimeout = time.Minute

// env is a space of a tenant, with a TLS port of its own.
type env struct {
	t      *testing.T
	source *access.Source
	config vcluster.Config
	plane  *vcluster.ControlPlane
	url    string
	ca     []byte
	stop   func()
}

// startEnv starts a space with a state.
func startEnv(t *testing.T, state *access.State) *env { return startEnvWith(t, state, nil) }

// startEnvWith is like startEnv, with what the platform shares.
func startEnvWith(t *testing.T, state *access.State, shared *definitions.Source) *env {
	t.Helper()
	serving, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, source: &access.Source{}, ca: serving.PEM()}
	e.source.Set(state)
	e.config = vcluster.Config{
		Name: "solar", Dir: t.TempDir(), Endpoint: "https://berth.example:7443/spaces/solar", ServingCA: serving.PEM(),
		Controllers: vcluster.SpaceControllers(), HiddenNodes: true, Access: e.source, Definitions: shared,
	}
	e.start(serving)
	return e
}

func (e *env) start(serving *pki.CA) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), testTimeout)
	defer cancel()
	var err error
	if e.plane, err = vcluster.Start(ctx, e.config); err != nil {
		e.t.Fatal(err)
	}
	pair, err := serving.Server("127.0.0.1")
	if err != nil {
		e.t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		e.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get(provenHeader); name != "" {
			r = r.WithContext(identity.With(r.Context(), &identity.Identity{Name: name, Proof: identity.HostServiceAccount}))
		}
		e.plane.Handler().ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	e.url = server.URL
	stopped := false
	e.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := e.plane.Stop(ctx); err != nil {
			e.t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	}
	e.t.Cleanup(e.stop)
	eventually(e.t, func() error { // a new space gathers the rules of its roles
		role, err := e.plane.Informers().Rbac().V1().ClusterRoles().Lister().Get("admin")
		if err != nil {
			return err
		}
		for _, a := range []authorizer.AttributesRecord{ // of the roles view, edit, and admin
			{Verb: "get", Resource: "pods"}, {Verb: "create", Resource: "configmaps"}, {Verb: "create", Resource: "rolebindings", APIGroup: rbacv1.GroupName},
		} {
			a.ResourceRequest = true
			if !rbac.RulesAllow(a, role.Rules...) {
				return fmt.Errorf("admins may not %s %s yet", a.Verb, a.Resource)
			}
		}
		return nil
	})
}

// sleepAndWake stops the space, calls f while it doesn't run, and starts it again.
func (e *env) sleepAndWake(f func()) {
	e.t.Helper()
	e.stop()
	f()
	serving, err := pki.OpenCA(e.t.TempDir(), "serving")
	if err != nil {
		e.t.Fatal(err)
	}
	e.ca, e.config.ServingCA = serving.PEM(), serving.PEM()
	e.start(serving)
}

func (e *env) clients() *pki.CA {
	e.t.Helper()
	ca, err := pki.OpenCA(filepath.Join(e.config.Dir, "pki"), pki.SpaceCA("solar"))
	if err != nil {
		e.t.Fatal(err)
	}
	return ca
}

func (e *env) by(pair pki.Pair, err error) *rest.Config {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	return &rest.Config{Host: e.url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: e.ca, CertData: pair.Cert, KeyData: pair.Key}}
}

// provenHeader stands for the platform, which has proven the ServiceAccount of the host that it names.
const provenHeader = "Test-Proven-Host-Account"

// proven returns a client that the platform has proven to be a ServiceAccount of the host.
func (e *env) proven(name string) *kubernetes.Clientset {
	e.t.Helper()
	c := &rest.Config{Host: e.url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: e.ca}}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set(provenHeader, name)
			return next.RoundTrip(r)
		})
	})
	return client(e.t, c)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// user returns a client with a certificate.
func (e *env) user(name string, groups ...string) *kubernetes.Clientset {
	e.t.Helper()
	return client(e.t, e.by(e.clients().Client(name, groups)))
}

// admin returns a client of a space's admin, who may do everything that RBAC allows.
func (e *env) admin() *kubernetes.Clientset { return e.user("admin", pki.AdminGroup) }

// as returns a client by which the admin impersonates somebody, as `kubectl --as NAME --as-group GROUP` does.
func (e *env) as(name string, groups ...string) *kubernetes.Clientset {
	e.t.Helper()
	c := e.by(e.clients().Client("admin", []string{pki.AdminGroup}))
	c.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return client(e.t, c)
}

func client(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// canI answers as `kubectl auth can-i VERB RESOURCE -n NAMESPACE` does.
func canI(t *testing.T, c kubernetes.Interface, verb, resource, namespace string) string {
	t.Helper()
	resource, group, _ := strings.Cut(resource, ".")
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if review.Status.Allowed {
		return "yes"
	}
	return "no"
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, testTimeout, true, func(context.Context) (bool, error) {
		last = f()
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(last)
	}
}

func createNamespace(t *testing.T, c kubernetes.Interface, name string) error {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// forbidden returns an error unless err refuses a request with these words.
func forbidden(err error, words ...string) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("it is not forbidden: %w", errOr(err))
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("it does not say %q: %w", w, err)
		}
	}
	return nil
}

func errOr(err error) error {
	if err == nil {
		return fmt.Errorf("it passes")
	}
	return err
}

// capsule is the tenant of the seed.
func capsule() *access.State {
	return &access.State{Space: "solar", Tenant: "solar", Access: v1alpha1.Access{
		OwnerProfile: v1alpha1.NamespaceAdmin,
		OwnerScope:   v1alpha1.OwnerScope{Groups: []string{v1alpha1.OwnersGroup}},
		Owners:       []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "alice"}},
	}}
}

func ptrQuantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
