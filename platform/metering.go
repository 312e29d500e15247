// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/metering"
	"github.com/berth-dev/berth/platform/datadir"
)

// startMetering records what tenants use, and serves the records on the control socket.
func (p *Platform) startMetering(ctx context.Context) error {
	store, damaged, err := metering.Open(ctx, datadir.Use(p.config.DataDir))
	if err != nil {
		return err
	}
	p.onStop(func(context.Context) { _ = store.Close() }) // all that was written is on disk
	if damaged != "" {
		p.logger.Error(nil, "The records of what tenants use are damaged; new ones begin", "damaged", damaged)
	}
	p.recorder = metering.New(metering.Config{
		Store: store, TenantOf: p.tenantOf, Clock: clock.RealClock{}, Logger: p.logger.WithName("metering"),
		Samples: func(context.Context) []metering.Sample { return p.manager.Samples() },
	})
	stop, err := p.recorder.Start(ctx)
	if err != nil {
		return err
	}
	p.onStop(stop)
	p.commands.Handle("GET /usage", control.Answer(func(r *http.Request) (any, error) {
		query, err := usageQuery(r.URL.Query())
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		p.recorder.Sample(r.Context())
		if err := p.recorder.Flush(r.Context()); err != nil {
			return nil, err
		}
		return store.Records(r.Context(), query, time.Now())
	}))
	return nil
}

// usageQuery reads the query of a request for records.
func usageQuery(values url.Values) (q metering.Query, err error) {
	if q.Since, err = time.Parse(time.RFC3339, values.Get("since")); err != nil {
		return q, fielderror.New("since", values.Get("since"), "must be a time of RFC 3339, such as 2006-01-02T15:04:05Z")
	}
	if q.Until, err = time.Parse(time.RFC3339, values.Get("until")); err != nil {
		return q, fielderror.New("until", values.Get("until"), "must be a time of RFC 3339, such as 2006-01-02T15:04:05Z")
	}
	q.Tenants = values["tenant"]
	return q, nil
}

// meter returns what counts the requests to spaces.
func (p *Platform) meter() gateway.Meter { return gateway.Meters{p.metrics, p.recorder} }
