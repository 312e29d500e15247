// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
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

// U1, U3, U4: a full path leads to the space of the tenant's name, for all verbs. The space of the client's own is that of its
// credential. What a full path answers is what the short one answers.
func TestFullPathsReachTheSpaceOfTheTenant(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host, demo := b.host(t), b.demo(t)
	host.apply(t, tenantObject("solar", "{}"))
	awaitTenant(t, host, "solar")
	applySpace(t, host, "solar-two", "{tenantName: solar}")
	solar, second := b.space(t, "solar"), b.space(t, "solar-two")

	full := solar.fullPaths(t, "solar")
	maps := full.CoreV1().ConfigMaps("default")
	follow := must(maps.Watch(t.Context(), metav1.ListOptions{LabelSelector: "of=test"}))(t)
	defer follow.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plan", Labels: map[string]string{"of": "test"}}}
	object = must(maps.Create(t.Context(), object, metav1.CreateOptions{}))(t)
	object.Data = map[string]string{"a": "1"}
	must(maps.Update(t.Context(), object, metav1.UpdateOptions{}))(t)
	must(maps.Patch(t.Context(), "plan", types.MergePatchType, []byte(`{"data":{"b":"2"}}`), metav1.PatchOptions{}))(t)
	if got := solar.kubectl(t, "get", "configmap", "plan", "-o", "jsonpath={.data}"); got != `{"a":"1","b":"2"}` {
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
	must(full.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{}))(t)
	must(full.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{}))(t)

	for _, path := range []string{"/api/v1/%snamespaces", "/apis/rbac.authorization.k8s.io/v1/%sclusterroles/admin", "/api/v1/%snamespaces/default/serviceaccounts?limit=1"} {
		short, by := strings.Replace(path, "%s", "", 1), strings.Replace(path, "%s", "tenants/solar/", 1)
		if want, got := must(solar.raw(t, short))(t), must(solar.raw(t, by))(t); got != want {
			t.Errorf("%s answers\n%s\nwant\n%s", by, got, want)
		}
	}
	if out := must(host.raw(t, "/api/v1/tenants/system/nodes"))(t); !strings.Contains(out, `"NodeList"`) {
		t.Errorf("the full path of the host answers %s", out)
	}
	if out := must(host.raw(t, "/apis/berth.dev/v1alpha1/tenants/solar"))(t); !strings.Contains(out, `"kind":"Tenant"`) { // a short path
		t.Errorf("the path of the Tenant object answers %s", out)
	}
	if out := must(second.raw(t, "/api/v1/namespaces"))(t); !strings.Contains(out, `"NamespaceList"`) || strings.Contains(out, `"made"`) {
		t.Errorf("the short path of another space of the tenant answers %s", out)
	}

	for name, c := range map[string]struct {
		as         *cluster
		path, says string
	}{
		"two tenants":            {solar, "/api/v1/tenants/solar/tenants/default/pods", "names the tenant solar and another one; remove one of them"},
		"no name":                {solar, "/api/v1/tenants/Solar/pods", `names the tenant "Solar"`},
		"another tenant":         {solar, "/api/v1/tenants/default/namespaces", "Unauthorized"},
		"an unknown tenant":      {solar, "/api/v1/tenants/nobody/namespaces", "Unauthorized"},
		"another space of it":    {second, "/api/v1/tenants/solar/namespaces", "Unauthorized"},
		"a space that is none":   {second, "/api/v1/tenants/solar-two/namespaces", "does not belong to a tenant of its name, so that it has no full path; use /spaces/solar-two"},
		"a space without tenant": {demo, "/api/v1/tenants/demo/namespaces", "use /spaces/demo"},
		"the host":               {solar, "/api/v1/tenants/system/nodes", "Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := c.as.raw(t, c.path); err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%s: got %s (%v), want %q", c.path, out, err, c.says)
			}
		})
	}
}

// U1, T8: a full path wakes a space for clients with a credential of it, and for nobody else.
func TestHostileFullPathsWakeNoSpaceOfOthers(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator")
	host := b.host(t)
	host.apply(t, tenantObject("solar", "{}"))
	awaitTenant(t, host, "solar")
	demo, solar := b.demo(t), b.space(t, "solar")
	b.command(t, "sleep", "solar")
	if _, err := demo.fullPaths(t, "solar").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client of another space gets %v", err)
	}
	if state, _ := b.stateOf(t, "solar"); state != "Asleep" {
		t.Errorf("a client of another space has the space %s", state)
	}
	must(solar.fullPaths(t, "solar").CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t)
	if state, _ := b.stateOf(t, "solar"); state == "Asleep" {
		t.Error("a client of the space does not wake it")
	}
}
