// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"time"
)

// NextExpiry is when the next object that is kept for a time only, such as an
// event, is due to go; ok is false if there is none. Nothing is lost if the
// control plane does not run by then: it goes at the next start.
func (p *ControlPlane) NextExpiry(ctx context.Context) (t time.Time, ok bool, err error) {
	return p.store.store.NextExpiry(ctx)
}
