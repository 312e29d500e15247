// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// maxQuotaSeries limits of how many resources of tenants there are metrics.
	maxQuotaSeries = 20_000
	// scrapeTimeout limits a read from the cache.
	scrapeTimeout = 10 * time.Second
)

// quotaMetrics are what tenants use of their quotas, as the statuses of Tenants in the cache say.
type quotaMetrics struct {
	tenants              client.Reader
	most                 int
	used, limit, omitted *prometheus.Desc
}

func newQuotaMetrics(tenants client.Reader, most int) *quotaMetrics {
	labels := []string{"tenant", "resource"}
	return &quotaMetrics{
		tenants: tenants, most: most,
		used:    prometheus.NewDesc("berth_quota_used", "What the tenant and the tenants below it use of a resource, in cores, bytes, or as a count.", labels, nil),
		limit:   prometheus.NewDesc("berth_quota_limit", "The quota of the tenant, which is never more than that of the tenant above.", labels, nil),
		omitted: prometheus.NewDesc("berth_quota_series_omitted", "Resources of tenants that the two metrics above leave out, because there are too many.", nil, nil),
	}
}

// SetUpMetrics serves metrics of quotas in the process that has the Lease.
func SetUpMetrics(m manager.Manager) error {
	err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		quotas := newQuotaMetrics(m.GetCache(), maxQuotaSeries)
		if err := metrics.Registry.Register(quotas); err != nil { // another operator of this process serves its own
			m.GetLogger().Info("This operator serves no metrics of quotas", "cause", err.Error())
			return nil
		}
		<-ctx.Done()
		metrics.Registry.Unregister(quotas)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("set up metrics of quotas: %w", err)
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (q *quotaMetrics) Describe(all chan<- *prometheus.Desc) {
	all <- q.used
	all <- q.limit
	all <- q.omitted
}

// Collect implements [prometheus.Collector].
func (q *quotaMetrics) Collect(all chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	list := &v1alpha1.TenantList{}
	if err := q.tenants.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		all <- prometheus.NewInvalidMetric(q.used, err)
		return
	}
	order := make([]*v1alpha1.Tenant, 0, len(list.Items))
	for i := range list.Items {
		order = append(order, &list.Items[i])
	}
	slices.SortFunc(order, func(a, b *v1alpha1.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	count, omitted := 0, 0
	for _, tenant := range order {
		for _, name := range slices.Sorted(maps.Keys(tenant.Status.Usage.Hard)) {
			if count == q.most {
				omitted++
				continue
			}
			count++
			limit, used := tenant.Status.Usage.Hard[name], tenant.Status.Subtree.Used[name]
			all <- prometheus.MustNewConstMetric(q.used, prometheus.GaugeValue, used.AsApproximateFloat64(), tenant.Name, string(name))
			all <- prometheus.MustNewConstMetric(q.limit, prometheus.GaugeValue, limit.AsApproximateFloat64(), tenant.Name, string(name))
		}
	}
	all <- prometheus.MustNewConstMetric(q.omitted, prometheus.GaugeValue, float64(omitted))
}
