// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/gateway/resolve"
)

// byTenant sends each request by the full path.
type byTenant struct {
	http.RoundTripper
	tenant string
}

func (b byTenant) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if full, ok := resolve.Full(b.tenant, r.URL.Path); ok {
		r.URL.Path = full
	}
	return b.RoundTripper.RoundTrip(r)
}

// endpoint is the URL of the API endpoint, without the path of a space.
func (c *cluster) endpoint() string {
	endpoint, _, _ := strings.Cut(c.config.Host, resolve.Prefix)
	return endpoint
}

// raw has kubectl get a path of the API endpoint.
func (c *cluster) raw(t *testing.T, path string) (string, error) {
	t.Helper()
	return c.tryKubectl(t, "", "--server", c.endpoint(), "get", "--raw", path)
}

// fullPaths returns the same API by full paths.
func (c *cluster) fullPaths(t *testing.T, tenant string) *cluster {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Host = c.endpoint()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return byTenant{next, tenant} })
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
}

// tenantURLs is a Berth with two tenants and their spaces. One of them has two, and the other one a dedicated one.
type tenantURLs struct {
	*berth
	hostAPI, demo, solar, second, lunar *cluster
}

// U1, U3, U4: a full path leads to the space of the tenant's name, and its credentials count there and nowhere else.
func TestFullPathsReachTheSpaceOfTheTenant(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	for _, tenant := range []string{"solar", "lunar"} {
		host.apply(t, tenantObject(tenant, "{}"))
		awaitTenant(t, host, tenant)
	}
	applySpace(t, host, "solar-two", "{tenantName: solar}")
	patchSpace(t, host, "lunar", "spec: {isolation: Dedicated}")
	u := &tenantURLs{b, host, b.demo(t), b.space(t, "solar"), b.space(t, "solar-two"), b.space(t, "lunar")}
	t.Run("with all verbs", u.haveAllVerbs)
	t.Run("with the answers of short paths", u.answerAsShortPaths)
	t.Run("with what tenants can use", u.showWhatTenantsCanUse)
	t.Run("with their fields", u.haveFields)
	t.Run("and refuse another tenant in objects", u.refuseOtherTenants)
	t.Run("on the host", u.leadToTheHost)
	t.Run("with its tokens", u.takeTokens)
	t.Run("with errors for all others", u.refuse)
	t.Run("and wake it", u.wake)
}

func (u *tenantURLs) haveAllVerbs(t *testing.T) {
	maps := u.solar.fullPaths(t, "solar").CoreV1().ConfigMaps("default")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	// Without the version of a list, a watch begins with the state at any time after its request, as in upstream's storage.
	listed := must(maps.List(ctx, metav1.ListOptions{LabelSelector: "of=test"}))(t)
	follow := must(maps.Watch(ctx, metav1.ListOptions{LabelSelector: "of=test", ResourceVersion: listed.ResourceVersion}))(t)
	defer follow.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plan", Labels: map[string]string{"of": "test"}}}
	object = must(maps.Create(t.Context(), object, metav1.CreateOptions{}))(t)
	object.Data = map[string]string{"a": "1"}
	must(maps.Update(t.Context(), object, metav1.UpdateOptions{}))(t)
	must(maps.Patch(t.Context(), "plan", types.MergePatchType, []byte(`{"data":{"b":"2"}}`), metav1.PatchOptions{}))(t)
	if got := u.solar.kubectl(t, "get", "configmap", "plan", "-o", "jsonpath={.data}"); got != `{"a":"1","b":"2"}` {
		t.Errorf("the object is %s", got)
	}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "of=test"}); err != nil {
		t.Error(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted} {
		if event := <-follow.ResultChan(); event.Type != want {
			t.Errorf("the watch has %v, want %s", event, want)
		}
	}
}

func (u *tenantURLs) answerAsShortPaths(t *testing.T) {
	fields := regexp.MustCompile(`,"tenant":"solar","selfLink":"/apis?/[^"]*/tenants/solar/[^"]*"`)
	for _, path := range []string{"/api/v1/%snamespaces", "/apis/rbac.authorization.k8s.io/v1/%sclusterroles/admin", "/api/v1/%snamespaces/default/serviceaccounts?limit=1", "/api/v1/%sserviceaccounts"} {
		short, full := strings.Replace(path, "%s", "", 1), strings.Replace(path, "%s", "tenants/solar/", 1)
		if want, got := must(u.solar.raw(t, short))(t), must(u.solar.raw(t, full))(t); fields.ReplaceAllString(got, "") != want || got == want {
			t.Errorf("%s answers\n%s\nwant\n%s", full, got, want)
		}
	}
	u.solar.kubectl(t, "create", "namespace", "made")
	if out := must(u.second.raw(t, "/api/v1/namespaces"))(t); !strings.Contains(out, `"NamespaceList"`) || strings.Contains(out, `"made"`) {
		t.Errorf("the short path of another space of the tenant answers %s", out)
	}
}

func (u *tenantURLs) leadToTheHost(t *testing.T) {
	for path, kind := range map[string]string{
		"/api/v1/tenants/system/nodes":                  `"kind":"NodeList"`,
		"/api/v1/nodes":                                 `"kind":"NodeList"`,
		"/apis/berth.dev/v1alpha1/tenants/solar":        `"kind":"Tenant"`,
		"/apis/berth.dev/v1alpha1/tenants/solar/status": `"kind":"Tenant"`,
	} {
		if out := must(u.hostAPI.raw(t, path))(t); !strings.Contains(out, kind) {
			t.Errorf("%s answers %s", path, out)
		}
	}
}

// A3: a token of a space, shared or dedicated, is worthless in another one.
func (u *tenantURLs) takeTokens(t *testing.T) {
	for tenant, admin := range map[string]*cluster{"solar": u.solar, "lunar": u.lunar} {
		admin.kubectl(t, "create", "clusterrolebinding", "readers", "--clusterrole=view", "--serviceaccount=default:default")
		config := rest.AnonymousClientConfig(admin.config)
		config.BearerToken = strings.TrimSpace(admin.kubectl(t, "create", "token", "default"))
		robot := &cluster{config: config}
		eventually(t, func() error {
			_, err := robot.fullPaths(t, tenant).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err
		})
		_, err := robot.fullPaths(t, tenant).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: what the account may not do in its space: %v", tenant, err)
		}
		for _, other := range []string{"solar", "lunar", "system", "nobody"} {
			if other == tenant {
				continue
			}
			if _, err := robot.fullPaths(t, other).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s: in the space of the tenant %s: %v", tenant, other, err)
			}
		}
	}
}

func (u *tenantURLs) refuse(t *testing.T) {
	for name, c := range map[string]struct {
		as         *cluster
		path, says string
	}{
		"two tenants":            {u.solar, "/api/v1/tenants/solar/tenants/default/pods", "names the tenant solar and another one; remove one of them"},
		"no name":                {u.solar, "/api/v1/tenants/Solar/pods", `names the tenant "Solar"`},
		"another tenant":         {u.solar, "/api/v1/tenants/lunar/namespaces", "Unauthorized"},
		"an unknown tenant":      {u.solar, "/api/v1/tenants/nobody/namespaces", "Unauthorized"},
		"another space of it":    {u.second, "/api/v1/tenants/solar/namespaces", "Unauthorized"},
		"a space that is none":   {u.second, "/api/v1/tenants/solar-two/namespaces", "does not belong to a tenant of its name, so that it has no full path; use /spaces/solar-two"},
		"a space without tenant": {u.demo, "/api/v1/tenants/demo/namespaces", "use /spaces/demo"},
		"the host":               {u.solar, "/api/v1/tenants/system/nodes", "Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := c.as.raw(t, c.path); err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%s: got %s (%v), want %q", c.path, out, err, c.says)
			}
		})
	}
}

// T8: clients with a credential of the space wake it, and nobody else.
func (u *tenantURLs) wake(t *testing.T) {
	u.command(t, "sleep", "solar")
	if _, err := u.second.fullPaths(t, "solar").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client of another space gets %v", err)
	}
	if state, _ := u.stateOf(t, "solar"); state != "Asleep" {
		t.Errorf("a client of another space has the space %s", state)
	}
	must(u.solar.fullPaths(t, "solar").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t)
	if state, _ := u.stateOf(t, "solar"); state == "Asleep" {
		t.Error("a client of the space does not wake it")
	}
}
