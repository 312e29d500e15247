// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"time"

	"github.com/berth-dev/berth/quota"
)

// QuotaPath is the path of the questions about the share of a quota, which are [quota.Wanted]. Answers are [quota.Answer].
const QuotaPath = "/quota"

// quotaPause is the pause between two questions about a quota.
const quotaPause = 200 * time.Millisecond

// FollowQuota answers the process when it asks for a larger share of its tenant's quota, until ctx ends. answer may take long.
func (p *Process) FollowQuota(ctx context.Context, answer func(context.Context, quota.Wanted) quota.Answer) {
	follow(ctx, p, QuotaPath, quotaPause, func(ctx context.Context, wanted quota.Wanted) (quota.Answer, bool) {
		if wanted.ID == 0 {
			return quota.Answer{}, false
		}
		return answer(ctx, wanted), true
	})
}

// AnswerQuota sends an answer to the process.
func (p *Process) AnswerQuota(ctx context.Context, answer quota.Answer) error {
	return p.answer(ctx, QuotaPath, answer)
}
