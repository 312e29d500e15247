// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/quota"
)

// hunger is of a space that was refused something.
type hunger struct {
	tenant string
	look   time.Duration
	since  time.Time // it was last refused
	tried  time.Time // it last tried again
	// of are the resources that it was refused.
	of map[corev1.ResourceName]bool
}

// note notes whether a space was refused something.
func (q *Quotas) note(space, tenant string, err error) {
	var exceeded *quota.Exceeded
	if !errors.As(err, &exceeded) {
		return
	}
	q.mu.Lock()
	one, was := q.hungry[space]
	if !was {
		one = &hunger{tenant: tenant, look: firstLook, of: map[corev1.ResourceName]bool{}}
		q.hungry[space] = one
	}
	one.since = q.Clock.Now()
	look, first := one.look, false
	for name := range exceeded.Limited {
		first = first || !one.of[name]
		one.of[name] = true
	}
	q.mu.Unlock()
	if first && q.Refused != nil {
		q.Refused(space, exceeded)
	}
	q.queue.AddAfter(task{retry, space}, look)
}
