// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/quota"
)

// reportFor is how long a tenant gets the same answer about its quota, so that its questions are not the host's.
const reportFor = 5 * time.Second

// tenantQuota returns what tells a space of the quota of its tenant; nil if it has none.
func (m *Manager) tenantQuota(space string) func(context.Context) (quota.Report, error) {
	if tenant, _ := m.quotaOf(space); tenant == "" {
		return nil
	}
	var mu sync.Mutex
	var last quota.Report
	var at time.Time
	return func(ctx context.Context) (quota.Report, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) < reportFor {
			return last, nil
		}
		report, err := m.reportQuota(ctx, space)
		if err != nil {
			m.logger.Error(err, "Could not read the quota of a tenant", "space", space) // it names what is the host's
			return report, apierrors.NewServiceUnavailable("the quota of the tenant can't be read now; try again")
		}
		last, at = report, time.Now()
		return report, nil
	}
}

// reportQuota adds up what the spaces of the tenant use, as the watch of their objects says. What the tenants above have and use is not
// for the space to know (H6).
func (m *Manager) reportQuota(ctx context.Context, space string) (report quota.Report, err error) {
	tenant, _ := m.quotaOf(space)
	report = quota.Report{Tenant: tenant, Used: corev1.ResourceList{}}
	if report.Limit, report.SpaceLimit, err = m.shares.Limits(ctx, space); err != nil {
		return report, fmt.Errorf("report the quota of space %s: %w", space, err)
	}
	for _, object := range m.objects.All() {
		if object.Spec.TenantName == tenant {
			report.Used = utilquota.Add(report.Used, object.Status.Quota.Used)
		}
		if object.Name == space {
			report.SpaceUsed = object.Status.Quota.Used
		}
	}
	return report, nil
}
