// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

func tenantsThatUse(t *testing.T) client.Reader {
	t.Helper()
	acme, solar := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}
	acme.Status.Usage = v1alpha1.TenantUsage{
		Hard: quantities{"limits.cpu": resource.MustParse("8"), "limits.memory": resource.MustParse("1Ki")}, Used: quantities{"limits.cpu": resource.MustParse("1")},
	}
	acme.Status.Subtree.Used = quantities{"limits.cpu": resource.MustParse("1500m"), "pods": resource.MustParse("3")}
	solar.Status.Usage.Hard = quantities{"pods": resource.MustParse("5")}
	return cached{tenants: []v1alpha1.Tenant{*solar, *acme}}
}

// cached is the cache of a manager.
type cached struct {
	client.Reader
	tenants []v1alpha1.Tenant
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.TenantList).Items = c.tenants
	return nil
}

// X7, Q5: metrics say what a tenant and those below it use of each resource that has a limit, and how many are left out.
func TestMetricsSayWhatTenantsUseOfTheirQuotas(t *testing.T) {
	for most, want := range map[int]string{
		100: `berth_quota_limit{resource="limits.cpu",tenant="acme"} 8
berth_quota_limit{resource="limits.memory",tenant="acme"} 1024
berth_quota_limit{resource="pods",tenant="solar"} 5
berth_quota_series_omitted 0
berth_quota_used{resource="limits.cpu",tenant="acme"} 1.5
berth_quota_used{resource="limits.memory",tenant="acme"} 0
berth_quota_used{resource="pods",tenant="solar"} 0
`,
		1: `berth_quota_limit{resource="limits.cpu",tenant="acme"} 8
berth_quota_series_omitted 2
berth_quota_used{resource="limits.cpu",tenant="acme"} 1.5
`,
	} {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newQuotaMetrics(tenantsThatUse(t), most))
		text := scrape(t, registry)
		if got := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, ""); got != want {
			t.Errorf("at most %d: got\n%s\nwant\n%s", most, got, want)
		}
	}
}

func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// docs/reference/metrics.md describes these metrics as they describe themselves.
func TestTheDocumentationHasTheMetricsOfQuotas(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newQuotaMetrics(tenantsThatUse(t), 100))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		row := regexp.MustCompile("(?m)^\\| `" + family.GetName() + "` \\|.*\\| " + regexp.QuoteMeta(strings.TrimSuffix(family.GetHelp(), ".")))
		if !row.Match(page) {
			t.Errorf("docs/reference/metrics.md doesn't say of %s: %s", family.GetName(), family.GetHelp())
		}
	}
}
