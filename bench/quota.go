// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/berth-dev/berth/bench/internal/report"
)

// measureQuota takes what the ledger of a tenant's quota costs: pods through a space of a tenant, beside pods through a space without one.
func measureQuota(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.quotaWays(ctx, "bench-quota")
	if err != nil {
		return err
	}
	toHost, _, err := b.onePodAfterTheOther(ctx, ways, max(1, b.pods/10), false)
	if err != nil {
		ways.stop()
		return err
	}
	b.addTimes("quota_pod_to_host_ms", toHost, nil)
	more := report.Percentile(toHost.berth, 50) - report.Percentile(toHost.stock, 50)
	b.report.Add("quota_pod_to_host_more_ms", "ms", more, 0, report.AtMost(0.5))
	return b.measureBursts(ctx, s, ways, "quota_burst_pods_per_s", "", 1, burstRepeats*b.repeats, report.AtLeastShare(0.97))
}
