// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"time"

	"github.com/berth-dev/berth/metrics"
)

func (p *Platform) newMetrics() *metrics.Metrics {
	return metrics.New(metrics.Config{
		Version: p.config.Version.Berth, Kubernetes: p.config.Version.Kubernetes,
		Names:  func() []string { return p.manager.Names() },
		Spaces: p.spaceMetrics,
		Cached: func() (own, other int) { return p.manager.Host().CachedObjects() },
		Certificates: func() map[string]time.Time {
			return map[string]time.Time{"authority": p.ca.NotAfter(), "serving": p.notAfter()}
		},
	})
}

// spaceMetrics returns the metrics of all spaces, and of the requests to them.
func (p *Platform) spaceMetrics() []metrics.Space {
	spaces := p.manager.Metrics()
	for i := range spaces {
		space := &spaces[i]
		if p.limiter != nil {
			p.limiter.Count(space.Name, space.Limits)
		}
		space.Tenant = p.manager.TenantOf(space.Name)
		if p.recorder != nil {
			use := p.recorder.Totals(space.Name)
			space.Use = map[string]float64{"cpu": use.CPU, "memory": use.Memory, "storage": use.Storage, "pods": use.Pods}
		}
	}
	return spaces
}
